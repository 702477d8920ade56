package job_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"flightline/shared/job"
)

// epoch is the instant that the tables count from.
var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at is so many seconds after epoch.
func at(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

func TestOverdue(t *testing.T) {
	tests := map[string]struct {
		status   job.Status
		deadline time.Time
		now      time.Time
		want     bool
	}{
		"before the deadline":        {job.InProgress, at(5), at(4.999), false},
		"at the deadline":            {job.InProgress, at(5), at(5), true},
		"after it":                   {job.InProgress, at(5), at(50), true},
		"no deadline":                {job.InProgress, time.Time{}, at(50), false},
		"waiting again":              {job.InQueue, at(5), at(50), false},
		"ended: the outcome decides": {job.Completed, at(5), at(50), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			j := job.Job{Status: tt.status, Deadline: tt.deadline}
			if got := j.Overdue(tt.now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestVisibleUntilGone(t *testing.T) {
	tests := map[string]struct {
		expires, retain time.Time
		gone            time.Time
	}{
		"waiting: only the ttl ends it":    {at(100), time.Time{}, at(100)},
		"ended: retention is sooner":       {at(100), at(60), at(60)},
		"ended: the ttl beats retention":   {at(100), at(1800), at(100)},
		"ended: both at the same instant":  {at(100), at(100), at(100)},
		"expired before anything happened": {at(0), time.Time{}, at(0)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			j := job.Job{Expires: tt.expires, RetainUntil: tt.retain}
			if got := j.GoneAt(); !got.Equal(tt.gone) {
				t.Errorf("gone at: got %v, want %v", got, tt.gone)
			}
			for _, now := range []struct {
				at   time.Time
				want bool
			}{
				{tt.gone.Add(-time.Hour), true},
				{tt.gone.Add(-time.Millisecond), true},
				{tt.gone, false},
				{tt.gone.Add(time.Millisecond), false},
				{tt.gone.Add(time.Hour), false},
			} {
				if got := j.Visible(now.at); got != now.want {
					t.Errorf("visible %v from then: got %v, want %v", now.at.Sub(tt.gone), got, now.want)
				}
			}
		})
	}
}

func TestDelayAndExecution(t *testing.T) {
	tests := map[string]struct {
		queued, started, finished time.Time
		delay, execution          time.Duration
	}{
		"never picked up":           {at(0), time.Time{}, time.Time{}, 0, 0},
		"cancelled while it waited": {at(0), time.Time{}, at(5), 0, 0},
		"running":                   {at(0), at(2), time.Time{}, 2 * time.Second, 8 * time.Second},
		"ended":                     {at(0), at(2), at(5), 2 * time.Second, 3 * time.Second},
		"a retry waits anew":        {at(3), at(5), at(6), 2 * time.Second, time.Second},
		"clocks apart":              {at(2), at(1.5), at(1), 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			j := job.Job{Queued: tt.queued, Started: tt.started, Finished: tt.finished}
			if got := j.Delay(); got != tt.delay {
				t.Errorf("delay: got %v, want %v", got, tt.delay)
			}
			if got := j.Execution(at(10)); got != tt.execution {
				t.Errorf("execution at 10 s: got %v, want %v", got, tt.execution)
			}
		})
	}
}

func TestRetriesCountExtraPickUpsOfAllAttempts(t *testing.T) {
	tests := map[string]struct{ earlier, run, want int }{
		"never picked up":              {0, 0, 0},
		"the first run":                {0, 1, 0},
		"after a lost worker":          {0, 2, 1},
		"retried, waiting":             {1, 0, 0},
		"retried, running":             {1, 1, 1},
		"lost workers and two retries": {4, 2, 5},
	}
	for name, tt := range tests {
		j := job.Job{Earlier: tt.earlier, Run: tt.run}
		if got := j.Retries(); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "abcd", "abcde": "abcd", "abcé": "abc", "a\xffb": "ab"} {
		if got := job.Cut(text, 4); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestCutError(t *testing.T) {
	const mark = "… (cut)"
	room := job.MaxError - len(mark)
	x := func(n int) string { return strings.Repeat("x", n) }
	tests := map[string]struct{ text, want string }{
		"empty":                       {"", ""},
		"short":                       {"out of memory", "out of memory"},
		"as long as may be":           {x(job.MaxError), x(job.MaxError)},
		"one byte more":               {x(job.MaxError + 1), x(room) + mark},
		"much more":                   {x(10 * job.MaxError), x(room) + mark},
		"ends before a character":     {x(room) + "é" + x(job.MaxError), x(room) + mark},
		"would halve 2 bytes":         {x(room-1) + "é" + x(job.MaxError), x(room-1) + mark},
		"would cut 3 bytes after one": {x(room-1) + "€" + x(job.MaxError), x(room-1) + mark},
		"would cut 3 bytes after two": {x(room-2) + "€" + x(job.MaxError), x(room-2) + mark},
		"would cut 4 bytes after 3":   {x(room-3) + "🚀" + x(job.MaxError), x(room-3) + mark},
		"a character just fits":       {x(room-4) + "🚀" + x(job.MaxError), x(room-4) + "🚀" + mark},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := job.CutError(tt.text)
			if got != tt.want {
				t.Errorf("got %d bytes ending in %q, want %d ending in %q", len(got), tail(got), len(tt.want), tail(tt.want))
			}
			if len(got) > job.MaxError || !utf8.ValidString(got) {
				t.Errorf("got %d bytes, valid UTF-8 %v, want at most %d, valid", len(got), utf8.ValidString(got), job.MaxError)
			}
		})
	}
}

func tail(s string) string { return s[max(0, len(s)-20):] }
