package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/services/webhook"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/streams"
)

const (
	// roleWebhook is a webhook service that also posts by itself when it is
	// asked to: the bare loop, in the same process.
	roleWebhook  = "webhook"
	webhooksCase = "webhooks"
	opPost       = "post"
	// hostsHanging is how many receivers hang, each with hungEach completions.
	hostsHanging, hungEach = 50, 3
	// postsAtOnce is what the service has for one origin.
	postsAtOnce = 8
	// answerAfter is what a receiver takes that does something.
	answerAfter = time.Millisecond
	// steadyWebhooks is the load, in completions a second, under which the
	// healthy receiver's delay is measured.
	steadyWebhooks = 1500
)

func serveWebhook(ctx context.Context, cfg config, w *wire) error {
	if err := os.Setenv("SSL_CERT_FILE", cfg.CA); err != nil {
		return err
	}
	in, err := newInsider(ctx, cfg, roleWebhook, queue.Config{})
	if err != nil {
		return err
	}
	defer in.nc.Close()
	here := webhook.Config{AllowHTTP: true, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	s, err := webhook.New(here, webhook.Deps{Queue: in.q, Registry: in.reg})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: postsAtOnce, DisableCompression: true, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	var all []posted
	post := func(o order) (sample, error) {
		if o.Like != nil {
			all = o.Like.others(o.N)
			return sample{}, nil
		}
		return load(ctx, o.N, o.Callers, func(ctx context.Context, i int) error { return all[i].post(ctx, client, o.URL) })
	}
	return together(ctx, func() error { return w.ready(ready{}, post) }, in.q.Run, in.reg.Run, s.Run)
}

// webhooks measures deliveries a second beside a bare loop of posts, and the
// delay of a healthy receiver's while others hang.
func (b *bench) webhooks(ctx context.Context) ([]row, error) {
	prepare, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	_, _ = fmt.Fprintln(b.progress, webhooksCase)
	in, secure := newInbox(false), newInbox(true)
	defer in.close()
	defer secure.close()
	ca := filepath.Join(b.dir, "receiver.pem")
	if err := secure.trust(ca); err != nil {
		return nil, err
	}
	on, err := b.newSite(prepare, siteConfig{name: webhooksCase, worker: roleWebhook, ca: ca})
	if err != nil {
		return nil, err
	}
	defer on.close()
	r := &round{site: on, load: b.sizes.webhooks}
	var rows []row
	for _, to := range []struct {
		inbox *inbox
		name  string
		slow  time.Duration
	}{
		{in, fmt.Sprintf("%d queued", r.load), 0},
		{secure, "https", 0},
		{in, "answer after " + answerAfter.String(), answerAfter},
	} {
		to.inbox.slow.Store(int64(to.slow))
		got, err := b.besideLoop(ctx, r, to.inbox)
		if err != nil {
			return nil, err
		}
		rows = append(rows, rowsOf(webhooksCase, to.name, got)...)
	}
	in.slow.Store(0)
	within, end := context.WithTimeout(ctx, stepWithin)
	defer end()
	late, err := besideHanging(within, r, in)
	return append(rows, rowsOf(webhooksCase, fmt.Sprintf("%d hosts hang", hostsHanging), []pair{{ours: late}})...), err
}

// besideLoop measures deliveries to a receiver beside the bare loop's posts.
func (b *bench) besideLoop(ctx context.Context, r *round, in *inbox) ([]pair, error) {
	ours := func(ctx context.Context, r *round) (reading, error) { return deliveries(ctx, r, in) }
	if _, err := step(ctx, ours, &round{site: r.site, load: 2}); err != nil { // which shows what to post
		return nil, err
	}
	return b.measure(ctx, testCase{
		name: webhooksCase,
		ours: ours,
		bare: func(ctx context.Context, r *round) (reading, error) {
			in.expect(r.load)
			if _, err := r.child(roleWebhook).do(ctx, order{Op: opPost, N: r.load, Like: in.seen.Load()}); err != nil {
				return nil, err
			}
			before := r.webhookCPU()
			got, err := r.child(roleWebhook).do(ctx, order{Op: opPost, N: r.load, Callers: postsAtOnce, URL: in.url})
			return append(reading{{"rate", perSecond, got.rate()}}, r.webhookCost(before)...), err
		},
	}, r)
}

// deliveries is one round: all wait in the queue when delivery begins.
func deliveries(ctx context.Context, r *round, in *inbox) (reading, error) {
	if _, err := r.js.PauseConsumer(ctx, streams.Webhooks, streams.WebhookConsumer, time.Now().Add(stepWithin)); err != nil {
		return nil, err
	}
	like, err := r.completion(ctx, in.url)
	if err != nil {
		return nil, err
	}
	for range r.load - 2 {
		if _, err := r.js.PublishMsgAsync(like(), jetstream.WithStallWait(stepWithin)); err != nil {
			return nil, err
		}
	}
	if err := r.waiting(ctx, r.load-1); err != nil {
		return nil, err
	}
	in.expect(r.load)
	before := r.webhookCPU()
	if _, err := r.js.ResumeConsumer(ctx, streams.Webhooks, streams.WebhookConsumer); err != nil {
		return nil, err
	}
	// One more has the server look at the queue: the end of a pause does not.
	if _, err := r.js.PublishMsgAsync(like()); err != nil {
		return nil, err
	}
	took, err := in.all(ctx)
	if err == nil {
		err = r.waiting(ctx, 0)
	}
	return append(reading{{"rate", perSecond, float64(r.load) / took.Seconds()}}, r.webhookCost(before)...), err
}

// besideHanging is the delay of completions for a healthy receiver, from when
// they are queued.
func besideHanging(ctx context.Context, r *round, in *inbox) (reading, error) {
	for range hostsHanging {
		hung, err := newListener(ctx)
		if err != nil {
			return nil, err
		}
		defer hung.Close() //nolint:errcheck // nobody accepts, nothing is lost
		like, err := r.completion(ctx, "http://"+hung.Addr().String())
		for i := 1; i < hungEach && err == nil; i++ {
			_, err = r.js.PublishMsg(ctx, like())
		}
		if err != nil {
			return nil, err
		}
	}
	like, err := r.completion(ctx, in.url)
	if err != nil {
		return nil, err
	}
	in.expect(r.load)
	queued, began := make(map[string]time.Time, r.load), time.Now()
	for i := range r.load {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / steadyWebhooks)))
		m := like()
		queued[strings.Split(m.Subject, ".")[2]] = time.Now()
		if _, err := r.js.PublishMsgAsync(m); err != nil {
			return nil, err
		}
	}
	if _, err := in.all(ctx); err != nil {
		return nil, err
	}
	late := in.after(queued)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return reading{}.with("p50", milliseconds, ms(quantile(late, 0.5))).with("p99", milliseconds, ms(quantile(late, 0.99))), nil
}

// completion queues one, and returns what makes more like it.
func (s *site) completion(ctx context.Context, url string) (like func() *nats.Msg, err error) {
	e, err := s.reg.Endpoints.Find(ctx, quietEndpoint)
	if err != nil {
		return nil, err
	}
	id := queue.NewID(job.Async)
	ask := job.Request{Input: json.RawMessage(`{"text":"` + strings.Repeat("x", 128) + `"}`), Webhook: url}
	if _, err := s.q.Submit(ctx, e, id, job.Async, ask); err != nil {
		return nil, err
	}
	j, err := s.q.Cancel(ctx, e, id)
	if err != nil {
		return nil, err
	}
	subject := streams.WebhookSubject(quietEndpoint, id, 1)
	heard := make(chan *nats.Msg, 1)
	watch, err := s.nc.ChanSubscribe(subject, heard)
	if err != nil {
		return nil, err
	}
	defer watch.Unsubscribe() //nolint:errcheck // it ends with the connection
	if err := s.q.Announce(ctx, queue.Fact{Job: *j, Partition: e.Partition}); err != nil {
		return nil, err
	}
	select {
	case m := <-heard:
		header := nats.Header{}
		for key, values := range m.Header {
			if strings.HasPrefix(key, "Flightline-") {
				header[key] = values
			}
		}
		return func() *nats.Msg {
			return &nats.Msg{Subject: streams.WebhookSubject(quietEndpoint, queue.NewID(job.Async), 1), Header: header, Data: m.Data}
		}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
