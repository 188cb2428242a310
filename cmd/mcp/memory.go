package main

import (
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory has garbage collected more eagerly when the container's memory limit comes near. GOMEMLIMIT says otherwise if it is
// set.
func limitMemory(log *slog.Logger) {
	switch limit, err := memlimit.Set(); {
	case err != nil:
		log.Info("the container's memory limit isn't known: set GOMEMLIMIT to what the server may use", "reason", err.Error())
	case limit < math.MaxInt64:
		log.Info("keeping to the memory limit", "GOMEMLIMIT", limit)
	}
}
