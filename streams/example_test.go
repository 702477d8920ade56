package streams_test

import (
	"fmt"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// The queue of an endpoint is a stream; each priority class has a consumer and
// each job a subject.
func ExampleJobs() {
	fmt.Println(streams.Jobs("upper"))
	fmt.Println(streams.AllJobs("upper"))
	fmt.Println(streams.ClassFilter("upper", job.LowPriority))
	// Output:
	// JOBS_upper
	// jobs.upper.>
	// jobs.upper.l.*
}

// A queue keeps one message for each attempt that waits or runs; the consumer's
// AckWait is the lease, and the number of deliveries is not bounded.
func ExampleConsumerConfig() {
	c := streams.ConsumerConfig(endpoint.Endpoint{ID: "upper", Lease: 30 * time.Second}, job.Normal)
	fmt.Println(c.Durable, c.AckWait, c.MaxDeliver)
	// Output:
	// normal 30s -1
}
