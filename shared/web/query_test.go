package web

import (
	"strings"
	"testing"
	"time"
)

func TestSince(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "0001-01-01T00:00:00Z": time.Time{}.Add(1), "90s": now.Add(-90 * time.Second), "0s": now, "24h": now.Add(-24 * time.Hour),
		"2026-01-30T13:00:00+01:00": now.Add(-24 * time.Hour), "2026-01-31T11:59:59.5Z": now.Add(-500 * time.Millisecond),
	} {
		if got, err := Since(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"-1h", "yesterday", "10", "2026-01-31"} {
		if _, err := Since(text, now); err == nil || !strings.Contains(err.Error(), "since is invalid; must be") {
			t.Errorf("%q: got %v, want it refused", text, err)
		}
	}
}
