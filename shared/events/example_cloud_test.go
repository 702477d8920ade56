package events_test

import (
	"fmt"
	"time"

	"flightline/shared/events"
	"flightline/shared/job"
)

// Subscribers get an event as a CloudEvents 1.0 document.
func ExampleEvent_Cloud() {
	e := events.Event{
		Kind: events.Completed, Endpoint: "upper", Job: "0198", Attempt: 1, Run: 1, Status: job.Completed,
		At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Seq: 7,
	}
	c := e.Cloud()
	fmt.Println(c.Type, c.Source, c.Subject, c.Time)
	fmt.Println(c.Sequence)
	// Output:
	// job.completed /v2/upper 0198 2026-11-21T12:00:00.000Z
	// 00000000000000000007
}

func ExampleKindOf() {
	fmt.Println(events.KindOf(job.TimedOut).Type())
	// Output: job.timed_out
}
