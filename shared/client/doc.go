// Package client speaks Flightline's HTTP API: it submits jobs, looks at
// them, waits for them, and manages endpoints and API keys. It needs the
// standard library only.
//
//	c, err := client.New("http://127.0.0.1:8080", apiKey)
//	j, err := c.Run(ctx, "echo", client.Request{Input: map[string]any{"text": "hello"}})
//	j, err = c.Wait(ctx, "echo", j.ID)
//
// Errors that the server answered are an [*Error]; [ErrUnreachable] means that
// no answer came, so that of a submission nothing is known. While a server is
// away, restarting or busy, calls are repeated for up to 30 s (WithPatience): all
// of them if it did not even take the connection, later only those that read or
// have an IdempotencyKey (WithRepeatableRuns); what else changes something is
// sent exactly once. If ctx ends meanwhile, or would before the next attempt, the
// error is ctx's and that of the last attempt.
package client
