package job_test

import (
	"errors"
	"fmt"

	"flightline/shared/job"
)

func ExampleNewRequest() {
	r, err := job.NewRequest([]byte(`{"input": {"prompt": "a cat"}, "policy": {"ttl": 60000}}`))
	fmt.Printf("%s %v %v\n", r.Input, r.Policy.TTL, err)

	_, err = job.NewRequest([]byte(`{"input": {}, "policy": {"ttl": 1}}`))
	fmt.Println(err)
	// Output:
	// {"prompt": "a cat"} 1m0s <nil>
	// policy.ttl must be between 10000 and 604800000 milliseconds
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
