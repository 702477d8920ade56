package api

import "time"

// FormatTime is an instant as answers show it, in UTC with milliseconds; "" for the
// zero time.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
