package endpoint_test

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flightline/shared/endpoint"
)

// Zero means the default; what is out of bounds names its field.
func ExampleEndpoint_Complete() {
	e, err := endpoint.Endpoint{ID: "upper"}.Complete()
	fmt.Println(e.Lease, e.MaxLost, e.ExecutionTimeout, err)

	_, err = endpoint.Endpoint{ID: "upper", Lease: time.Second}.Complete()
	if wrong, ok := errors.AsType[*endpoint.FieldError](err); ok {
		fmt.Println(wrong.Field, wrong.Problem)
	}
	// Output:
	// 30s 3 10m0s <nil>
	// leaseMs must be between 10000 and 3600000 milliseconds, got 1000
}

func ExampleValidID() {
	fmt.Println(endpoint.ValidID("llama-3_2"), endpoint.ValidID("llama 3"), endpoint.ValidID("drain"))
	// Output: true false false
}

// The receiver of a webhook verifies it with a library of Standard Webhooks and
// the endpoint's secret.
func ExampleNewWebhookSecret() {
	secret := endpoint.NewWebhookSecret() // shown by GET /v1/endpoints/ID
	body := []byte(`{"id":"0198","status":"COMPLETED"}`)

	// What Flightline sends:
	sender, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Now()
	signature, err := sender.Sign("msg_0198_1", now, body)
	if err != nil {
		fmt.Println(err)
		return
	}
	header := http.Header{}
	header.Set("webhook-id", "msg_0198_1")
	header.Set("webhook-timestamp", fmt.Sprint(now.Unix()))
	header.Set("webhook-signature", signature)

	// What the receiver does:
	receiver, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receiver.Verify(body, header))
	fmt.Println(receiver.Verify([]byte(`{"id":"0198","status":"FAILED"}`), header) != nil)
	// Output:
	// <nil>
	// true
}
