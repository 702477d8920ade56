package api

import (
	"testing"
	"time"
)

func TestFormatTime(t *testing.T) {
	at := time.Date(2026, 11, 21, 13, 4, 5, 6_700_000, time.FixedZone("", 3600))
	for want, given := range map[string]time.Time{"": {}, "2026-11-21T12:04:05.006Z": at, "2026-11-21T12:04:05.000Z": at.Truncate(time.Second)} {
		if got := FormatTime(given); got != want {
			t.Errorf("%v: got %q, want %q", given, got, want)
		}
	}
}
