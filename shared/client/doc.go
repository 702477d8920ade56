// Package client speaks Flightline's HTTP API: it submits jobs, looks at
// them, waits for them, and manages endpoints and API keys. It needs the
// standard library only.
//
//	c, err := client.New("http://127.0.0.1:8080", apiKey)
//	j, err := c.Run(ctx, "echo", client.Request{Input: map[string]any{"text": "hello"}})
//	j, err = c.Wait(ctx, "echo", j.ID)
//
// Errors that the server answered are an [*Error]; [ErrUnreachable] means that
// no answer came, so that of a submission nothing is known. Reads are tried
// again when the server is busy or restarting; what changes something is sent
// exactly once.
package client
