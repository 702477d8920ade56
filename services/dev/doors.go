package dev

import (
	"context"
	"fmt"
	"io"
	"net"
)

// doors are where a process is reached.
type doors struct {
	requests net.Listener
	scrapes  net.Listener // nil for nowhere
}

// openDoors listens at the addresses of --listen and --metrics-listen.
func openDoors(ctx context.Context, listen, metrics string) (*doors, error) {
	var listening net.ListenConfig
	requests, err := listening.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	scrapes, err := listenMetrics(ctx, metrics)
	if err != nil {
		_ = requests.Close() // nobody has come in yet
		return nil, err
	}
	return &doors{requests, scrapes}, nil
}

// url is the address for requests, as a client on this machine dials it.
func (d *doors) url() string { return nearby("http://" + d.requests.Addr().String()) }

// close closes what was not served. What was is closed already.
func (d *doors) close() {
	_ = d.requests.Close()
	if d.scrapes != nil {
		_ = d.scrapes.Close()
	}
}

// tell says where metrics are scraped.
func (d *doors) tell(out io.Writer) error {
	if d.scrapes == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "flightline metrics: %s/metrics\n", nearby("http://"+d.scrapes.Addr().String()))
	return err
}
