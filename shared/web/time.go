package web

import "time"

// Since reads the parameter since: an instant, or how long before now it was, as
// 10m. "" is the zero time. The error is an InvalidRequest.
func Since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, Errorf(InvalidRequest, "since is invalid; must be an instant as 2026-01-31T12:00:00Z, or how long ago as 90s, 10m or 24h")
	}
	return at, nil
}

// FormatTime is an instant as answers show it, in UTC with milliseconds; "" for the
// zero time.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
