package store

import (
	"context"

	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
)

// openAzure finds credentials as Azure's tools do: environment variables, or the workload's identity.
func (l *Location) openAzure() (*blob.Bucket, error) {
	options := azureblob.NewDefaultServiceURLOptions()
	if account := l.parameters["storage_account"]; account != "" {
		options.AccountName = account
	}
	if domain := l.parameters["domain"]; domain != "" {
		options.StorageDomain = domain
	}
	service, err := azureblob.NewServiceURL(options)
	if err != nil {
		return nil, err
	}
	client, err := azureblob.NewDefaultClient(service, azureblob.ContainerName(l.bucket))
	if err != nil {
		return nil, err
	}
	return azureblob.OpenBucket(context.Background(), client, nil)
}
