package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"flightline/shared/process"
	"flightline/shared/worker"
)

// upper is a whole handler.
func upper(ctx context.Context, j *worker.Job) (any, error) {
	var in struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return nil, fmt.Errorf("input: %w", err) // the job is FAILED with this text
	}
	for word := range strings.FieldsSeq(in.Text) {
		if err := j.Emit(ctx, strings.ToUpper(word)); err != nil { // read on /stream while the job runs
			return nil, err
		}
	}
	return map[string]string{"text": strings.ToUpper(in.Text)}, nil
}

// A worker runs until its context ends, and then finishes what it has begun.
func ExampleRun() { //nolint:testableexamples // it needs a bus; upper is shown with its output below
	ctx, stop := process.Signals(context.Background()) // SIGINT and SIGTERM
	defer stop()
	err := worker.Run(ctx, worker.Config{Endpoint: "upper", NATSURL: "nats://127.0.0.1:4222", Concurrency: 4}, upper)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// A handler is a function: a test of it needs no queue.
func ExampleHandler() {
	out, err := upper(context.Background(), &worker.Job{ID: "1", Input: json.RawMessage(`{"text":"hello world"}`)})
	fmt.Println(out, err)
	// Output: map[text:HELLO WORLD] <nil>
}
