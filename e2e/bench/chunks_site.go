package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"flightline/shared/worker"
)

const (
	// roleEmitter is a worker that emits as many chunks as its input says, as
	// fast as it can.
	roleEmitter = "emitter"
	// roleStreamer is the bare server: fasthttp alone, which answers with the
	// body of the request again and again, flushed each time. Like ours, it
	// writes together what waits while it writes.
	roleStreamer = "streamer"
)

// chunks measures the way from a worker's Emit to clients that read along.
func (b *bench) chunks(ctx context.Context) ([]row, error) {
	prepare, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	on, err := b.newSite(prepare, siteConfig{name: chunksCase, sync: syncInterval, slots: slots, worker: roleEmitter})
	if err != nil {
		return nil, err
	}
	defer on.close()
	c, up, err := start(prepare, roleStreamer, config{})
	if err != nil {
		return nil, err
	}
	on.children = append(on.children, c)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: slots, DisableCompression: true}}
	defer client.CloseIdleConnections()
	t := &tap{
		round: &round{site: on, load: b.sizes.chunks, trips: b.sizes.firsts},
		http:  client, base: "http://" + on.http.host.Addr, key: on.http.key, bare: "http://" + up.HTTP,
	}
	var rows []row
	for _, atOnce := range []int{1, 32} {
		for _, m := range mouths {
			_, _ = fmt.Fprintf(b.progress, "chunks: %s, %d at once\n", m.name, atOnce)
			measured := func(bare bool) func(context.Context, *round) (reading, error) {
				return func(ctx context.Context, _ *round) (reading, error) { return t.measure(ctx, m, bare, atOnce) }
			}
			got, err := b.measure(ctx, testCase{ours: measured(false), bare: measured(true)}, t.round)
			if err != nil {
				return nil, fmt.Errorf("%s, %d at once: %w", m.name, atOnce, err)
			}
			rows = append(rows, rowsOf(chunksCase, fmt.Sprintf("%s, %d at once", m.name, atOnce), got)...)
		}
	}
	return rows, nil
}

func serveEmitter(ctx context.Context, cfg config, w *wire) error {
	return runWorker(ctx, cfg, w, func(ctx context.Context, j *worker.Job) (any, error) {
		var in struct {
			Chunks int `json:"chunks"`
			OpenAI struct {
				Chunks int `json:"chunks"`
			} `json:"openai_input"` //nolint:tagliatelle // RunPod's name
		}
		if err := json.Unmarshal(j.Input, &in); err != nil {
			return nil, err
		}
		for range in.Chunks + in.OpenAI.Chunks {
			if err := j.Emit(ctx, chunkText); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}

func serveStreamer(ctx context.Context, _ config, w *wire) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", anyPort)
	if err != nil {
		return err
	}
	server := &fasthttp.Server{Handler: streamBare, CloseOnShutdown: true, ReadTimeout: time.Minute}
	return together(ctx, func() error { return w.ready(ready{HTTP: listener.Addr().String()}, noOrders) },
		func(context.Context) error { return server.Serve(listener) },
		func(ctx context.Context) error {
			<-ctx.Done()
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = server.ShutdownWithContext(within) // connections that nobody closed go with the process
			return nil
		},
	)
}

func streamBare(c *fasthttp.RequestCtx) {
	block, n := string(c.PostBody()), c.QueryArgs().GetUintOrZero("n")
	c.SetContentType("text/event-stream")
	c.SetBodyStreamWriter(func(w *bufio.Writer) {
		for range n {
			if _, err := w.WriteString(block); err != nil || w.Flush() != nil {
				return
			}
		}
	})
}
