package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/client"
	"flightline/shared/ratelimit"
)

func TestManagementIsSentAsTheAPIWantsIt(t *testing.T) {
	tests := map[string]struct {
		call   func(context.Context, *client.Client) error
		answer answer
		want   request
	}{
		"create endpoint": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Create(ctx, client.EndpointSpec{
				ID: "ep", Name: new("n"), ExecutionTimeout: time.Second, TTL: 2 * time.Second, Retention: 3 * time.Second,
				SyncRetention: 4 * time.Second, Lease: 5 * time.Second, MaxLostWorkers: new(1), MaxQueueBytes: 40_000_000, MaxQueueJobs: 90, WorkersMin: new(0),
			})
			return err
		}, ok(`{}`), request{
			Method: "POST", URI: "/v1/endpoints", ContentType: "application/json",
			Body: `{"id":"ep","name":"n","executionTimeoutMs":1000,"ttlMs":2000,"retentionMs":3000,"syncRetentionMs":4000,` +
				`"leaseMs":5000,"maxLostWorkers":1,"maxQueueBytes":40000000,"maxQueueJobs":90,"workersMin":0}`,
		}},
		"get endpoint": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Get(ctx, "ep")
			return err
		}, ok(`{}`), request{Method: "GET", URI: "/v1/endpoints/ep"}},
		"list endpoints": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().List(ctx)
			return err
		}, ok(`[]`), request{Method: "GET", URI: "/v1/endpoints"}},
		"update endpoint, never its id": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Update(ctx, "ep", client.EndpointSpec{ID: "other", WorkersMax: new(7)})
			return err
		}, ok(`{}`), request{Method: "PATCH", URI: "/v1/endpoints/ep", ContentType: "application/json", Body: `{"workersMax":7}`}},
		"limits of an endpoint": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Update(ctx, "ep", client.EndpointSpec{Limits: map[string]client.Limit{"run": {Requests: 5, Concurrent: 1}}})
			return err
		}, ok(`{}`), request{
			Method: "PATCH", URI: "/v1/endpoints/ep", ContentType: "application/json", Body: `{"limits":{"run":{"requests":5,"concurrent":1}}}`,
		}},
		"no limits of its own": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Update(ctx, "ep", client.EndpointSpec{Limits: map[string]client.Limit{}})
			return err
		}, ok(`{}`), request{Method: "PATCH", URI: "/v1/endpoints/ep", ContentType: "application/json", Body: `{"limits":{}}`}},
		"pauses between webhooks": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Update(ctx, "ep", client.EndpointSpec{WebhookRetries: []time.Duration{time.Second, time.Minute}})
			return err
		}, ok(`{}`), request{
			Method: "PATCH", URI: "/v1/endpoints/ep", ContentType: "application/json", Body: `{"webhookRetriesMs":[1000,60000]}`,
		}},
		"one attempt for webhooks": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Endpoints().Update(ctx, "ep", client.EndpointSpec{WebhookRetries: []time.Duration{}})
			return err
		}, ok(`{}`), request{Method: "PATCH", URI: "/v1/endpoints/ep", ContentType: "application/json", Body: `{"webhookRetriesMs":[]}`}},
		"delete endpoint": {func(ctx context.Context, c *client.Client) error {
			return c.Endpoints().Delete(ctx, "ep", false)
		}, answer{status: 204}, request{Method: "DELETE", URI: "/v1/endpoints/ep"}},
		"delete endpoint by force": {func(ctx context.Context, c *client.Client) error {
			return c.Endpoints().Delete(ctx, "ep", true)
		}, answer{status: 204}, request{Method: "DELETE", URI: "/v1/endpoints/ep?force=true"}},
		"create key": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Keys().Create(ctx, client.KeySpec{Name: "ci", Scopes: []string{"submit:ep"}})
			return err
		}, ok(`{}`), request{
			Method: "POST", URI: "/v1/keys", ContentType: "application/json", Body: `{"name":"ci","scopes":["submit:ep"]}`,
		}},
		"list keys": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Keys().List(ctx)
			return err
		}, ok(`[]`), request{Method: "GET", URI: "/v1/keys"}},
		"change quota": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Keys().ChangeQuota(ctx, "k1", ratelimit.QuotaChange{"requests": new(int64(5)), "endpoints": nil})
			return err
		}, ok(`{"id":"k1"}`), request{
			Method: "PATCH", URI: "/v1/keys/k1", ContentType: "application/json", Body: `{"quota":{"endpoints":null,"requests":5}}`,
		}},
		"revoke key": {func(ctx context.Context, c *client.Client) error {
			return c.Keys().Revoke(ctx, "k1")
		}, answer{status: 204}, request{Method: "DELETE", URI: "/v1/keys/k1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, test.answer)
			if err := test.call(t.Context(), s.Client); err != nil {
				t.Fatal(err)
			}
			test.want.Auth = "Bearer secret"
			if diff := cmp.Diff([]request{test.want}, s.requests()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAnEndpointIsReadWhole(t *testing.T) {
	const raw = `{"id":"ep","name":"n","executionTimeoutMs":1000,"ttlMs":2000,"retentionMs":3000,"syncRetentionMs":4000,` +
		`"leaseMs":5000,"maxLostWorkers":1,"maxQueueBytes":40000000,"maxQueueJobs":90,"requestsPerWorker":2,"failureBudget":20,"workersMin":3,"workersMax":4,"streamFormat":"auto",` +
		`"webhookRetriesMs":[1000],"webhookSecret":"s","createdAt":"2026-01-02T03:04:05Z","version":6}`
	got, err := serve(t, ok("["+raw+"]")).Endpoints().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []client.Endpoint{{
		ID: "ep", Name: "n", ExecutionTimeout: time.Second, TTL: 2 * time.Second, Retention: 3 * time.Second,
		SyncRetention: 4 * time.Second, Lease: 5 * time.Second, MaxLostWorkers: 1, MaxQueueBytes: 40_000_000, MaxQueueJobs: 90, RequestsPerWorker: 2, FailureBudget: 20,
		WorkersMin: 3, WorkersMax: 4, StreamFormat: "auto", WebhookRetries: []time.Duration{time.Second}, WebhookSecret: "s",
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Version: 6, Raw: []byte(raw),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := compact(t, got); got != "["+raw+"]" {
		t.Errorf("got %s, want the answer as it came", got)
	}
}
