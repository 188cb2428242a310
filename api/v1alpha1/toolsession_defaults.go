package v1alpha1

import "time"

// Defaults of a session, as the API server fills them in: the markers of the fields have the same values. They count for an
// object that no API server has completed.
const (
	defaultIdleTimeoutSeconds   = 900
	defaultMaxLifetimeSeconds   = 28800
	defaultMaxConcurrentCalls   = 1
	defaultMaxCalls             = 10000
	defaultTTLSecondsAfterEnded = 3600
)

// IdleTimeout is how long the session may be without a call; 0 for no limit.
func (s *ToolSession) IdleTimeout() time.Duration {
	return seconds(s.Spec.IdleTimeoutSeconds, defaultIdleTimeoutSeconds)
}

// MaxLifetime is how long after its creation the session ends.
func (s *ToolSession) MaxLifetime() time.Duration {
	return seconds(s.Spec.MaxLifetimeSeconds, defaultMaxLifetimeSeconds)
}

// MaxConcurrentCalls is how many of the session's calls run at the same time.
func (s *ToolSession) MaxConcurrentCalls() int {
	return int(orDefault(s.Spec.MaxConcurrentCalls, defaultMaxConcurrentCalls))
}

// MaxCalls is how many calls the session takes.
func (s *ToolSession) MaxCalls() int { return int(orDefault(s.Spec.MaxCalls, defaultMaxCalls)) }

// TTLAfterEnded is how long the session stays after its end.
func (s *ToolSession) TTLAfterEnded() time.Duration {
	return seconds(s.Spec.TTLSecondsAfterEnded, defaultTTLSecondsAfterEnded)
}

func orDefault(value *int32, byDefault int32) int32 {
	if value == nil {
		return byDefault
	}
	return *value
}

func seconds(value *int32, byDefault int32) time.Duration {
	return time.Duration(orDefault(value, byDefault)) * time.Second
}
