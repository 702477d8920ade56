package client_test

import (
	"context"
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
	mux.Handle("GET /v2/echo/status-sync/0198", answer(`{"id":"0198","status":"COMPLETED","output":{"text":"hello"}}`))
	web := httptest.NewServer(mux)
	return web.URL, "fl_example", web.Close
}
