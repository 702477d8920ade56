package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"flightline/shared/client"
)

func Example() {
	address, apiKey, stop := flightline() // as `flightline dev` writes into .flightline/dev.json
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.New(address, apiKey)
	if err != nil {
		fmt.Println(err)
		return
	}
	j, err := c.Run(ctx, "echo", client.Request{Input: map[string]any{"text": "hello"}})
	if err != nil {
		fmt.Println("not accepted, or with ErrUnreachable perhaps accepted:", err)
		return
	}
	fmt.Println(j.Status)

	if j, err = c.Wait(ctx, "echo", j.ID); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(j.Status, string(j.Output))
	// Output:
	// IN_QUEUE
	// COMPLETED {"text":"hello"}
}

// flightline stands for a server with the endpoint echo.
func flightline() (address, apiKey string, stop func()) {
	answer := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	mux := http.NewServeMux()
	mux.Handle("POST /v2/echo/run", answer(`{"id":"0198","status":"IN_QUEUE"}`))
	mux.Handle("GET /v2/echo/status/gone", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":"no such job","code":"job_not_found"}`)
	}))
	mux.Handle("GET /v2/echo/stream/0198", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 1\ndata: {\"output\":\"one\"}\n\nid: 2\ndata: {\"output\":\"two\"}\n\n"+
			"event: status\ndata: {\"id\":\"0198\",\"status\":\"COMPLETED\"}\n\n")
	}))
	mux.Handle("GET /v2/echo/status-sync/0198", answer(`{"id":"0198","status":"COMPLETED","output":{"text":"hello"}}`))
	web := httptest.NewServer(mux)
	return web.URL, "fl_example", web.Close
}

// A submission with a key may be sent again: it is the same job.
func ExampleClient_Run_idempotencyKey() {
	address, apiKey, stop := flightline()
	defer stop()
	c, err := client.New(address, apiKey)
	if err != nil {
		fmt.Println(err)
		return
	}
	order := client.Request{Input: map[string]any{"order": 7}, IdempotencyKey: "order-7"}
	for range 2 {
		j, err := c.Run(context.Background(), "echo", order)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(j.ID)
	}
	// Output:
	// 0198
	// 0198
}

// The code of an error is from the API's closed list.
func ExampleError() {
	address, apiKey, stop := flightline()
	defer stop()
	c, err := client.New(address, apiKey)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Status(context.Background(), "echo", "gone")
	if refused, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(refused.Status, refused.Code, client.IsNotFound(err))
	}
	// Output: 404 job_not_found true
}

// Chunks are read while the job runs; the job's end follows them.
func ExampleStream() {
	address, apiKey, stop := flightline()
	defer stop()
	c, err := client.New(address, apiKey)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := c.Stream("echo", "0198", client.StreamOptions{})
	for chunk, err := range s.All(context.Background()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(string(chunk.Data))
	}
	fmt.Println(s.End().Status)
	// Output:
	// {"output":"one"}
	// {"output":"two"}
	// COMPLETED
}
