package job

// Triggers lists every trigger.
func Triggers() []Trigger {
	return []Trigger{Claim, Touch, Succeed, Fail, TimeOut, Cancel, Release, Retry}
}
