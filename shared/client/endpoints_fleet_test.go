package client_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/client"
)

func TestFleetsAreSentAsTheAPIWantsThem(t *testing.T) {
	calls := map[string]struct {
		do     func(ctx context.Context, c *client.Client) error
		answer string
		want   request
	}{
		"all of it": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Create(ctx, client.EndpointSpec{ID: "ep", Fleet: client.FleetSpec{
				ScalerType: "REQUEST_COUNT", ScalerValue: new(2), IdleSeconds: new(60), Driver: "docker", TemplateID: new("t"), Image: new("i:1"),
				Command: []string{"a", "b"}, Env: map[string]string{"A": "b"}, GPUs: new(1), VCPUs: new(0.5), MemoryGB: new(4.0),
			}})
			return err
		}, `{}`, request{
			Method: "POST", URI: "/v1/endpoints", ContentType: "application/json",
			Body: `{"id":"ep","scalerType":"REQUEST_COUNT","scalerValue":2,"idleTimeout":60,"driver":"docker","templateId":"t","imageName":"i:1",` +
				`"command":["a","b"],"env":{"A":"b"},"gpuCount":1,"vcpuCount":0.5,"memoryInGb":4}`,
		}},
		"nothing left of an image, a command and an environment": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Update(ctx, "ep", client.EndpointSpec{Fleet: client.FleetSpec{Image: new(""), Command: []string{}, Env: map[string]string{}}})
			return err
		}, `{}`, request{Method: "PATCH", URI: "/v1/endpoints/ep", ContentType: "application/json", Body: `{"imageName":"","command":[],"env":{}}`}},
		"pause": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Pause(ctx, "ep", time.Minute)
			return err
		}, `{}`, request{Method: "POST", URI: "/v1/endpoints/ep/pause", ContentType: "application/json", Body: `{"durationMs":60000}`}},
		"pause without an end": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Pause(ctx, "ep", 0)
			return err
		}, `{}`, request{Method: "POST", URI: "/v1/endpoints/ep/pause", ContentType: "application/json", Body: `{}`}},
		"resume": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Resume(ctx, "ep")
			return err
		}, `{}`, request{Method: "POST", URI: "/v1/endpoints/ep/resume"}},
		"scaling": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Scaling(ctx, "ep", 7)
			return err
		}, `[]`, request{Method: "GET", URI: "/v1/endpoints/ep/scaling?limit=7"}},
		"input": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Input(ctx, "ep", "j1")
			return err
		}, `{}`, request{Method: "GET", URI: "/v2/ep/input/j1"}},
		"explain": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Explain(ctx, "ep", "j1")
			return err
		}, `{}`, request{Method: "GET", URI: "/v2/ep/explain/j1"}},
	}
	for name, tt := range calls {
		t.Run(name, func(t *testing.T) {
			s := serve(t, ok(tt.answer))
			if err := tt.do(t.Context(), s.Client); err != nil {
				t.Fatal(err)
			}
			tt.want.Auth = "Bearer secret"
			if diff := cmp.Diff([]request{tt.want}, s.requests()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFleetsAndExplanationsAreRead(t *testing.T) {
	var e client.Endpoint
	const endpoint = `{"id":"ep","scalerType":"QUEUE_DELAY","scalerValue":4,"idleTimeout":5,"driver":"process","command":["x"],"env":{"K":"***"},"pausedUntil":"2026-11-21T12:00:00.000Z","pauseReason":"no model","rollout":"canary:10%","canary":{"state":"running","version":3,"formerVersion":1}}`
	if err := json.Unmarshal([]byte(endpoint), &e); err != nil {
		t.Fatal(err)
	}
	want := client.Fleet{
		ScalerType: "QUEUE_DELAY", ScalerValue: 4, IdleSeconds: 5, Driver: "process", Command: []string{"x"},
		Env: map[string]string{"K": "***"}, PausedUntil: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), PauseReason: "no model",
		Rollout: "canary:10%", Canary: &client.Canary{State: "running", Version: 3, FormerVersion: 1},
	}
	if diff := cmp.Diff(want, e.Fleet); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const answer = `{"id":"j","status":"IN_QUEUE","reason":"waiting: it is next","queue":{"position":1,"positionMost":1,"exact":true,"inQueue":2},"retries":1}`
	var x client.Explanation
	if err := json.Unmarshal([]byte(answer), &x); err != nil {
		t.Fatal(err)
	}
	if x.Reason != "waiting: it is next" || x.Queue == nil || x.Queue.InQueue != 2 || x.Scaling != nil {
		t.Errorf("got %+v", x)
	}
	if again, err := json.Marshal(x); err != nil || string(again) != answer {
		t.Errorf("got %s, %v; want what came", again, err)
	}
}
