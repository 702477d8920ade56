package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	sdk "flightline/shared/worker"
)

// runSleeper is a worker of the Go SDK, which can sleep: it unlocks its GPUs for that, and
// locks them again before it is awake. It ends by a signal.
func runSleeper(ledger, uuids string) {
	asleep := func(context.Context) error {
		unlockGPUs()
		note(ledger, setting("RUNPOD_POD_ID")+" sleeps\n")
		return nil
	}
	awake := func(context.Context) error {
		lockGPUs(ledger, uuids)
		return nil
	}
	err := sdk.Run(context.Background(), sdk.Config{
		Endpoint: setting("RUNPOD_ENDPOINT_ID"), ID: setting("RUNPOD_POD_ID"),
		NATSURL: setting("NATS_URL"), User: setting("FLIGHTLINE_NATS_USER"), Password: setting("FLIGHTLINE_NATS_PASSWORD"),
		Sleep: asleep, Wake: awake,
	}, sleepJob)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(3) //nolint:forbidigo // a program of its own
	}
}

// sleepJob takes input.ms and returns the id of the worker.
func sleepJob(ctx context.Context, j *sdk.Job) (any, error) {
	var in struct {
		Ms int `json:"ms"`
	}
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("job %s: %w", j.ID, ctx.Err())
	case <-time.After(time.Duration(in.Ms) * time.Millisecond):
	}
	return map[string]string{"worker": setting("RUNPOD_POD_ID")}, nil
}
