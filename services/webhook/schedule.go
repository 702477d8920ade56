package webhook

import (
	"net/http"
	"strconv"
	"time"

	"flightline/shared/deliveries"
	"flightline/streams"
)

const (
	// retryPause is what the contract has between two attempts.
	retryPause = 10 * time.Second
	// maxRetryAfter bounds the pause that a receiver may ask for.
	maxRetryAfter = 60 * time.Second
)

// contractSchedule are the pauses before the attempts that follow the first one, unless the
// endpoint has others.
var contractSchedule = []time.Duration{retryPause, retryPause}

// step is what to do with a task.
type step int

const (
	try    step = iota // attempt number n
	wait               // for the time of the next attempt
	finish             // it was delivered
	giveUp             // all attempts failed
)

// stepOf decides by the last attempt that the log has; n is the next one. It is due also
// if the last one is yet to begin: the server's clock was set back since.
func stepOf(last deliveries.Attempt, replay string, now time.Time) (do step, n int) {
	switch {
	case last.Seq == 0 || last.Replay != replay:
		return try, 1
	case last.Outcome == deliveries.Delivered:
		return finish, 0
	case last.Outcome == deliveries.GivenUp:
		return giveUp, 0
	case now.Before(last.Next) && !now.Before(last.Started):
		return wait, 0
	}
	return try, last.Try + 1
}

// pauseAfter is how long after the end of failed attempt n the next one
// follows; again is false if none exists. A receiver may ask for a longer
// pause, not for a shorter one.
func pauseAfter(n int, schedule []time.Duration, wish time.Duration) (pause time.Duration, again bool) {
	if schedule == nil {
		schedule = contractSchedule
	}
	if n > len(schedule) {
		return 0, false
	}
	return max(schedule[n-1], min(wish, maxRetryAfter)), true
}

// outcomeOf decides what attempt number n led to, and when the next one is due. It ended at
// ended; its task expires at expires.
func outcomeOf(got result, n int, schedule []time.Duration, ended, expires time.Time) (outcome deliveries.Outcome, next time.Time) {
	if got.ok() {
		return deliveries.Delivered, time.Time{}
	}
	pause, again := pauseAfter(n, schedule, got.retryAfter)
	next = ended.Add(pause)
	if !again || got.gone || !next.Add(streams.WebhookWait).Before(expires) {
		return deliveries.GivenUp, time.Time{}
	}
	return deliveries.Failed, next
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
