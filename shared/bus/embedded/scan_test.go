package embedded

import (
	"io/fs"
	"os"
	"testing"
	"time"
)

func TestAListingHoldsOnlyWhileNothingCanHaveChangedUnseen(t *testing.T) {
	moment := time.Date(2026, 11, 21, 5, 0, 0, 123456789, time.UTC)
	tests := map[string]struct {
		listed, now time.Time // when the directory had been changed
		after       time.Duration
		want        bool
	}{
		"untouched for long":                   {moment, moment, time.Second, true},
		"changed since":                        {moment, moment.Add(1), time.Second, false},
		"changed within the tick of a clock":   {moment, moment, 5 * time.Millisecond, false},
		"changed later than now":               {moment, moment, -time.Hour, false},
		"a file system that counts in seconds": {moment.Truncate(time.Second), moment.Truncate(time.Second), time.Hour, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := listing{at: test.listed.Add(test.after), dir: changed(t, dir, test.listed)}
			if got := l.holds(changed(t, dir, test.now)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if l.holds(changed(t, t.TempDir(), test.now)) {
				t.Error("another directory: got true, want false")
			}
		})
	}
	if new(listing).holds(changed(t, t.TempDir(), moment)) {
		t.Error("never listed: got true, want false")
	}
}

// changed returns what stat says of dir after a change at a given time.
func changed(t *testing.T, dir string, at time.Time) fs.FileInfo {
	t.Helper()
	if err := os.Chtimes(dir, at, at); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
