package web

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/gofiber/fiber/v2"
)

// stopWithin is how long Serve waits for the requests under way. Handlers that
// hold an answer let go at once (Hold).
const stopWithin = 10 * time.Second

// Serve answers requests on the listener until ctx ends, then lets those under
// way finish, and returns nil. One that has not arrived after 3 s is answered 408.
// It returns an error if the listener breaks, or if requests were still under way after
// 10 s. It closes the listener.
func Serve(ctx context.Context, app *fiber.App, listener net.Listener) error {
	served := make(chan error, 1)
	connections := &connections{open: map[*conn]struct{}{}}
	go func() { served <- app.Listener(listening{listener, connections}) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", listener.Addr(), orClosed(err))
	case <-ctx.Done():
	}
	connections.receiveUntil(time.Now().Add(receiveTimeout))
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := app.ShutdownWithContext(grace)
	_ = listener.Close() // closed already, unless the end came before the start
	if err != nil {
		return fmt.Errorf("stop serving %s: %w", listener.Addr(), err)
	}
	return <-served
}

// orClosed gives a name to the end of a listener that nobody asked for.
func orClosed(err error) error {
	if err == nil {
		return net.ErrClosed
	}
	return err
}
