package limits

import (
	"cmp"

	"toolcall.dev/operator/internal/fair"
)

// Principal is who uses a limited resource.
type Principal struct{ User, Tenant string }

// Limit bounds how much of a resource is in use: in total, by one tenant and by one user.
type Limit struct {
	*fair.Counter[string]
	Total, PerTenant, PerUser int
}

// New returns a limit. A perTenant of 0 means that tenants have no bound of their own.
func New(total, perTenant, perUser int) *Limit {
	perTenant = cmp.Or(perTenant, total)
	return &Limit{fair.NewCounter[string](int64(total), int64(perTenant), int64(perUser)), total, perTenant, perUser}
}

// Reserve takes an amount, unless that exceeds a bound. The caller releases it.
func (l *Limit) Reserve(p Principal, amount int64) (share *fair.Share[string], ok bool) {
	return l.Acquire(amount, p.Tenant, p.User)
}
