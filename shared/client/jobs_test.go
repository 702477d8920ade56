package client_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/client"
	"flightline/shared/job"
)

func TestEachOperationIsSentAsTheAPIWantsIt(t *testing.T) {
	const bearer = "Bearer secret"
	input := client.Request{Input: map[string]int{"n": 1}}
	full := client.Request{
		Input: json.RawMessage(`{"b":1,"a":2}`), Webhook: "https://example.com/h",
		Policy: client.Policy{ExecutionTimeout: 5 * time.Second, TTL: time.Minute, LowPriority: true},
		S3:     &client.S3Config{AccessID: "i", AccessSecret: "s", BucketName: "b", EndpointURL: "http://s3"},
	}
	tests := map[string]struct {
		call func(context.Context, *client.Client) error
		want request
	}{
		"run": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Run(ctx, "ep", input)
			return err
		}, request{Method: "POST", URI: "/v2/ep/run", ContentType: "application/json", Body: `{"input":{"n":1}}`}},
		"run with everything": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Run(ctx, "ep", full)
			return err
		}, request{
			Method: "POST", URI: "/v2/ep/run", ContentType: "application/json",
			Body: `{"input":{"b":1,"a":2},"webhook":"https://example.com/h",` +
				`"policy":{"executionTimeout":5000,"ttl":60000,"lowPriority":true},` +
				`"s3Config":{"accessId":"i","accessSecret":"s","bucketName":"b","endpointUrl":"http://s3"}}`,
		}},
		"runsync": {func(ctx context.Context, c *client.Client) error {
			_, err := c.RunSync(ctx, "ep", input, 2*time.Second)
			return err
		}, request{Method: "POST", URI: "/v2/ep/runsync?wait=2000", ContentType: "application/json", Body: `{"input":{"n":1}}`}},
		"status": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Status(ctx, "ep", "j1")
			return err
		}, request{Method: "GET", URI: "/v2/ep/status/j1"}},
		"status-sync with the server's wait": {func(ctx context.Context, c *client.Client) error {
			_, err := c.StatusSync(ctx, "ep", "j1", 0)
			return err
		}, request{Method: "GET", URI: "/v2/ep/status-sync/j1"}},
		"a name that is no path stays in its place": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Status(ctx, "a/b", "../c?d")
			return err
		}, request{Method: "GET", URI: "/v2/a%2Fb/status/..%2Fc%3Fd"}},
		"set ttl": {func(ctx context.Context, c *client.Client) error {
			_, err := c.SetTTL(ctx, "ep", "j1", time.Minute)
			return err
		}, request{Method: "GET", URI: "/v2/ep/status/j1?ttl=60000"}},
		"cancel": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Cancel(ctx, "ep", "j1")
			return err
		}, request{Method: "POST", URI: "/v2/ep/cancel/j1"}},
		"retry": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Retry(ctx, "ep", "j1")
			return err
		}, request{Method: "POST", URI: "/v2/ep/retry/j1"}},
		"purge": {func(ctx context.Context, c *client.Client) error {
			_, err := c.PurgeQueue(ctx, "ep")
			return err
		}, request{Method: "POST", URI: "/v2/ep/purge-queue"}},
		"health": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Health(ctx, "ep")
			return err
		}, request{Method: "GET", URI: "/v2/ep/health"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, ok(`{}`))
			if err := test.call(t.Context(), s.Client); err != nil {
				t.Fatal(err)
			}
			test.want.Auth = bearer
			if diff := cmp.Diff([]request{test.want}, s.requests()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAJobIsReadWhole(t *testing.T) {
	const raw = `{"id":"j1","status":"FAILED","delayTime":12,"executionTime":3400,"output":[1],` +
		`"error":"boom","retries":2,"workerId":"w1","later":"field"}`
	got, err := serve(t, ok(raw)).Status(t.Context(), "ep", "j1")
	if err != nil {
		t.Fatal(err)
	}
	want := &client.Job{
		ID: "j1", Status: job.Failed, Delay: 12 * time.Millisecond, Execution: 3400 * time.Millisecond,
		Output: json.RawMessage(`[1]`), Error: "boom", Retries: 2, WorkerID: "w1", Raw: json.RawMessage(raw),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := compact(t, got); got != raw {
		t.Errorf("got %s, want the answer as it came: %s", got, raw)
	}
}

func TestPurgeAndHealthAreRead(t *testing.T) {
	removed, err := serve(t, ok(`{"removed":2,"status":"completed"}`)).PurgeQueue(t.Context(), "ep")
	if err != nil || removed != 2 {
		t.Errorf("got %d, %v, want 2", removed, err)
	}
	h, err := serve(t, ok(`{"jobs":{"completed":1,"failed":2,"inProgress":3,"inQueue":4,"retried":5},
		"workers":{"idle":1,"initializing":2,"ready":3,"running":4,"throttled":5,"unhealthy":6}}`)).Health(t.Context(), "ep")
	want := client.Health{
		Jobs:    client.JobCounts{Completed: 1, Failed: 2, InProgress: 3, InQueue: 4, Retried: 5},
		Workers: client.WorkerCounts{Idle: 1, Initializing: 2, Ready: 3, Running: 4, Throttled: 5, Unhealthy: 6},
	}
	if err != nil || h != want {
		t.Errorf("got %+v, %v, want %+v", h, err, want)
	}
}

// Any type takes null, and would be empty: a job without an id.
func TestAnAnswerNullIsAnError(t *testing.T) {
	s := serve(t, ok("null\n"))
	if got, err := s.Run(t.Context(), "ep", client.Request{Input: 1}); err == nil || !strings.Contains(err.Error(), "not what the API promises: null") {
		t.Errorf("got %+v, %v, want an error", got, err)
	}
}
