package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/storehealth"
	"flightline/streams"
)

const (
	// systemAge is how old an answer of Inspector may be: its questions grow with the
	// number of endpoints.
	systemAge = 3 * time.Second
	// maxQueuesShown bounds the queues of an answer, and with them the consumers that
	// are asked for.
	maxQueuesShown = 20
	// maxConcurrentInfos bounds the consumers that are asked for side by side.
	maxConcurrentInfos = 16
)

// InspectorConfig is what an Inspector looks at.
type InspectorConfig struct {
	// Doctor is what it takes for right. Fix and Deep are ignored.
	Doctor DoctorConfig
	// Endpoints lists all endpoints, also those that are being deleted. Required.
	Endpoints func(context.Context) ([]endpoint.Endpoint, error)
	// Disk measures the file system of NATS. Nil if it cannot be seen from here.
	Disk func(context.Context) (storehealth.Space, error)
	// Failed are streams that refuse writes, as far as they are known. Nil means none.
	Failed func() []storehealth.Failure
}

// Inspector answers how the installation is, for people who keep asking. It is
// safe for concurrent use.
type Inspector struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	cfg InspectorConfig

	mu   sync.Mutex
	last *systemState
}

// systemState is what is asked for at most every systemAge.
type systemState struct {
	at       time.Time
	storage  api.Storage
	streams  []api.Stream
	wanted   map[string][]jetstream.ConsumerConfig
	findings []Finding
}

// NewInspector returns an inspector that has looked at nothing.
func NewInspector(nc *nats.Conn, cfg InspectorConfig) (*Inspector, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(askTimeout))
	if err != nil {
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	cfg.Doctor.Fix, cfg.Doctor.Deep, cfg.Doctor.quick = false, false, true
	cfg.Doctor.Log = cmp.Or(cfg.Doctor.Log, slog.New(slog.DiscardHandler))
	return &Inspector{nc: nc, js: js, cfg: cfg}, nil
}

// System returns how the installation is, without its processes. name, if it is not
// "", leaves out the streams whose names do not contain it, in any case. Of the
// queues, the 20 with the most messages are listed: the lag of a consumer is at
// most what its stream has. It returns bus.ErrUnavailable.
func (i *Inspector) System(ctx context.Context, name string) (api.System, error) {
	last, err := i.look(ctx)
	if err != nil {
		return api.System{}, err
	}
	v := api.System{At: api.FormatTime(last.at), Storage: last.storage, Processes: []api.Process{}}
	v.Streams = shownStreams(last.streams, name)
	for _, s := range last.streams {
		v.Consumers.Count += s.Consumers
	}
	var missing []Finding
	if v.Consumers.List, missing, err = i.consumers(ctx, v.Streams.List, last.wanted); err != nil {
		return api.System{}, err
	}
	v.Findings = worstFirst(slices.Concat(last.findings, missing))
	return v, nil
}

// look is the last state that was read, or a new one once that is too old. Callers at the same
// time share it.
func (i *Inspector) look(ctx context.Context) (*systemState, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.last != nil && time.Since(i.last.at) < systemAge {
		return i.last, nil
	}
	s, err := i.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: look at the streams: %w", bus.ErrUnavailable, err)
	}
	i.last = s
	return s, nil
}

func (i *Inspector) read(ctx context.Context) (*systemState, error) {
	before, err := i.cfg.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	account, err := i.js.AccountInfo(ctx)
	if err != nil {
		return nil, err
	}
	there, silent, err := bus.StreamInfos(ctx, i.nc, askTimeout)
	if err != nil {
		return nil, err
	}
	after, err := i.cfg.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	settled, endpoints := during(before, after)
	s := &systemState{at: time.Now(), storage: api.Storage{UsedBytes: account.Store}, wanted: map[string][]jetstream.ConsumerConfig{}}
	if account.Limits.MaxStore > 0 {
		s.storage.LimitBytes = uint64(account.Limits.MaxStore)
	}
	if i.cfg.Disk != nil {
		if disk, err := i.cfg.Disk(ctx); err == nil { // else it is not known
			s.storage.DiskFreeBytes, s.storage.DiskBytes = disk.Free, disk.Total
		}
	}
	for _, info := range there {
		s.streams = append(s.streams, streamOf(info))
	}
	for _, w := range streams.AllWanted(i.cfg.Doctor.Streams, settled) {
		s.wanted[w.Config.Name] = w.Consumers
	}
	s.findings = i.findings(ctx, account, there, silent, settled, endpoints)
	return s, nil
}

// findings are those of the doctor's checks that ask for nothing of each stream.
func (i *Inspector) findings(ctx context.Context, account *jetstream.AccountInfo, there map[string]*jetstream.StreamInfo, silent []string, settled, endpoints []endpoint.Endpoint) []Finding {
	x := &checker{nc: i.nc, js: i.js, cfg: i.cfg.Doctor, silent: silent}
	x.server()
	x.checkLimits(account)
	if x.schema(ctx) {
		x.clock(ctx)
		x.compare(ctx, there, settled)
		x.queues(there, endpoints)
	}
	if i.cfg.Failed != nil {
		for _, f := range i.cfg.Failed() {
			x.refuses(f)
		}
	}
	return x.report.Findings
}

// during are the endpoints of both lists that are not being deleted: a stream that is missing
// from what was listed in between is missing. all are those of either list.
func during(before, after []endpoint.Endpoint) (settled, all []endpoint.Endpoint) {
	all = after
	still := make(map[string]endpoint.Endpoint, len(after))
	for _, e := range after {
		still[e.ID] = e
	}
	for _, e := range before {
		now, there := still[e.ID]
		if !there {
			all = append(all, e)
		} else if !now.Deleting && now.Created.Equal(e.Created) {
			settled = append(settled, now)
		}
	}
	return settled, all
}

func streamOf(info *jetstream.StreamInfo) api.Stream {
	s := api.Stream{
		Name: info.Config.Name, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxAgeMs: info.Config.MaxAge.Milliseconds(),
		Consumers: info.State.Consumers, Replicas: max(1, info.Config.Replicas),
	}
	if of, queue := streams.EndpointOfQueue(s.Name); queue {
		s.Endpoint = of
	}
	if info.Config.MaxBytes > 0 {
		s.MaxBytes = uint64(info.Config.MaxBytes)
	}
	return s
}

// shownStreams are the streams whose name contains the text: what endpoints share by
// name, then the queues with the most messages.
func shownStreams(all []api.Stream, name string) api.Streams {
	v := api.Streams{Count: len(all), List: []api.Stream{}}
	var queues []api.Stream
	for _, s := range all {
		v.Messages, v.Bytes = v.Messages+s.Messages, v.Bytes+s.Bytes
		if !strings.Contains(strings.ToLower(s.Name), strings.ToLower(name)) {
			continue
		}
		v.Matched++
		if s.Endpoint != "" {
			queues = append(queues, s)
		} else {
			v.List = append(v.List, s)
		}
	}
	slices.SortFunc(v.List, func(a, b api.Stream) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(queues, func(a, b api.Stream) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), strings.Compare(a.Name, b.Name))
	})
	v.List = append(v.List, queues[:min(len(queues), maxQueuesShown)]...)
	return v
}

// consumers asks for the consumers that the streams should have, and says which are
// missing or differ. A stream that was removed meanwhile has none.
func (i *Inspector) consumers(ctx context.Context, of []api.Stream, wanted map[string][]jetstream.ConsumerConfig) ([]api.Consumer, []Finding, error) {
	x := &checker{cfg: i.cfg.Doctor}
	list := []api.Consumer{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrentInfos)
	for _, s := range of {
		for _, want := range wanted[s.Name] {
			g.Go(func() error {
				got, err := i.js.Consumer(ctx, s.Name, want.Durable)
				if errors.Is(err, jetstream.ErrStreamNotFound) {
					return nil
				}
				if err != nil && !notFound(err) {
					return fmt.Errorf("%w: look at consumer %s of %s: %w", bus.ErrUnavailable, want.Durable, s.Name, err)
				}
				mu.Lock()
				defer mu.Unlock()
				x.checkConsumer(s.Name, want, got, err)
				if err == nil {
					list = append(list, consumerOf(got.CachedInfo()))
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(list, func(a, b api.Consumer) int {
		return cmp.Or(cmp.Compare(lagOf(b), lagOf(a)), strings.Compare(a.Stream, b.Stream), strings.Compare(a.Name, b.Name))
	})
	return list, x.report.Findings, nil
}

// lagOf is how many messages a consumer has before it.
func lagOf(c api.Consumer) uint64 { return c.Pending + uint64(max(0, c.AckPending)) }

func consumerOf(info *jetstream.ConsumerInfo) api.Consumer {
	return api.Consumer{
		Name: info.Name, Stream: info.Stream, Pending: info.NumPending, AckPending: info.NumAckPending,
		Redelivered: info.NumRedelivered, Waiting: info.NumWaiting, Paused: info.Paused,
	}
}

// worstFirst sorts findings by their state, else they stay in their order.
func worstFirst(all []Finding) []Finding {
	rank := map[State]int{Fail: 0, Warn: 1, OK: 2}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(rank[a.State], rank[b.State]) })
	return all
}
