package job_test

import (
	"errors"
	"fmt"
	"time"

	"flightline/shared/job"
)

func ExampleNewRequest() {
	r, err := job.NewRequest([]byte(`{"input": {"prompt": "a cat"}, "policy": {"ttl": 60000}}`))
	fmt.Printf("%s %v %v\n", r.Input, r.Policy.TTL, err)

	_, err = job.NewRequest([]byte(`{"input": {}, "policy": {"ttl": 1}}`))
	fmt.Println(err)
	// Output:
	// {"prompt": "a cat"} 1m0s <nil>
	// policy.ttl must be between 10000 and 604800000 milliseconds, got 1
}

func ExampleStatus_Next() {
	next, _ := job.InProgress.Next(job.Succeed)
	fmt.Println(next, next.Terminal())

	_, err := next.Next(job.Cancel)
	fmt.Println(err, errors.Is(err, job.ErrConflict))
	// Output:
	// COMPLETED true
	// job: cannot cancel while COMPLETED true
}

// A request that is wrong names the field.
func ExampleFieldError() {
	_, err := job.NewRequest([]byte(`{"input":{},"policy":{"ttl":5}}`))
	if wrong, ok := errors.AsType[*job.FieldError](err); ok {
		fmt.Println(wrong.Field, errors.Is(err, job.ErrInvalid))
	}
	// Output: policy.ttl true
}

// A job is gone when its ttl or its retention is over, whichever ends first.
func ExampleJob_GoneAt() {
	submitted := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	j := job.Job{Status: job.Completed, Submitted: submitted, Expires: submitted.Add(time.Hour), RetainUntil: submitted.Add(30 * time.Minute)}
	fmt.Println(j.GoneAt().Sub(submitted), j.Visible(submitted.Add(29*time.Minute)), j.Visible(submitted.Add(31*time.Minute)))
	// Output: 30m0s true false
}
