package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"flightline/shared/job"
)

const (
	chunksCase = "chunks"
	// chunkMark is in each chunk once, and nowhere else in an answer.
	chunkMark = "~"
	// chunkText is 64 bytes, and an event of the OpenAI route by itself.
	chunkText = "data: {\"token\":\"" + chunkMark + "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}\n\n"
	// fewChunks are those of a stream that is read for its first byte.
	fewChunks = 4
)

// mouth is one way to read what a worker emits.
type mouth struct {
	name string
	// block is what a chunk is on the wire.
	block string
	// ahead does what is not timed, and returns what open is to be given.
	ahead func(ctx context.Context, t *tap, n int) (job.ID, error)
	// open asks for a stream of n chunks.
	open func(ctx context.Context, t *tap, id job.ID, n int) (*http.Response, error)
}

var mouths = []mouth{
	{"sse", eventBlock, nil, func(ctx context.Context, t *tap, _ job.ID, n int) (*http.Response, error) {
		id, err := t.run(ctx, n)
		if err != nil {
			return nil, err
		}
		return t.do(ctx, http.MethodGet, "stream/"+string(id)+"?format=sse", "")
	}},
	{"sse of a finished job", eventBlock, finishedChunks, func(ctx context.Context, t *tap, id job.ID, _ int) (*http.Response, error) {
		return t.do(ctx, http.MethodGet, "stream/"+string(id)+"?format=sse", "")
	}},
	{"openai", chunkText, nil, func(ctx context.Context, t *tap, _ job.ID, n int) (*http.Response, error) {
		return t.do(ctx, http.MethodPost, "openai/v1/chat/completions", fmt.Sprintf(`{"stream":true,"chunks":%d}`, n))
	}},
}

// eventBlock is a chunk as /stream tells it.
var eventBlock = "id: 12345\ndata: {\"output\":" + strings.ReplaceAll(fmt.Sprintf("%q", chunkText), `\u007e`, chunkMark) + "}\n\n"

// tap reads streams, ours or the bare server's.
type tap struct {
	*round
	http *http.Client
	base string // address of ours
	key  string
	bare string // address of the bare server
	// emitted is how long a job took to emit while nobody read along.
	emitted time.Duration
}

// finishedChunks has a job emit, and waits for its end.
func finishedChunks(ctx context.Context, t *tap, n int) (job.ID, error) {
	began := time.Now()
	id, err := t.run(ctx, n)
	if err == nil {
		err = t.drained(ctx, busyEndpoint)
	}
	t.emitted = time.Since(began)
	return id, err
}

func (t *tap) run(ctx context.Context, n int) (job.ID, error) {
	resp, err := t.do(ctx, http.MethodPost, "run", fmt.Sprintf(`{"input":{"chunks":%d}}`, n))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var got struct {
		ID job.ID `json:"id"`
	}
	err = json.NewDecoder(resp.Body).Decode(&got)
	return got.ID, err
}

// do calls an operation of the endpoint with the worker.
func (t *tap) do(ctx context.Context, method, operation, body string) (*http.Response, error) {
	return t.ask(ctx, method, t.base+"/v2/"+busyEndpoint+"/"+operation, body)
}

func (t *tap) ask(ctx context.Context, method, address, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", t.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := t.http.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.Join(fmt.Errorf("%s: %s", address, resp.Status), resp.Body.Close())
	}
	return resp, err
}

// count reads an answer to its end. It returns the time of the first chunk, and
// an error unless there were n.
func count(resp *http.Response, n int) (first time.Time, err error) {
	defer resp.Body.Close()
	got, buf := 0, make([]byte, 32<<10)
	for {
		k, err := resp.Body.Read(buf)
		here := bytes.Count(buf[:k], []byte(chunkMark))
		if got == 0 && here > 0 {
			first = time.Now()
		}
		got += here
		if err == io.EOF && got == n {
			return first, nil
		}
		if err != nil {
			return first, fmt.Errorf("%d of %d chunks: %w", got, n, err)
		}
	}
}

// measure is one round: the rate of long streams, so many at once, and how long
// after the first byte of the request the first chunk of a short one is there.
func (t *tap) measure(ctx context.Context, m mouth, bare bool, atOnce int) (reading, error) {
	each := t.load / atOnce
	s, _, err := t.streams(ctx, m, bare, atOnce, atOnce, each)
	if err != nil {
		return nil, err
	}
	got := reading{}.with("rate", "chunks/s", float64(atOnce*each)/s.Elapsed.Seconds())
	if m.ahead != nil && !bare {
		got = got.with("emitted unread by one job", "chunks/s", float64(each)/t.emitted.Seconds())
	}
	_, firsts, err := t.streams(ctx, m, bare, t.trips, atOnce, fewChunks)
	if err != nil {
		return nil, err
	}
	ms := func(q float64) float64 { return float64(quantile(firsts, q).Microseconds()) / 1000 }
	return got.with("first p50", milliseconds, ms(0.5)).with("first p99", milliseconds, ms(0.99)), nil
}

// streams reads k streams of n chunks each, and returns, sorted, how long each
// one's first chunk took.
func (t *tap) streams(ctx context.Context, m mouth, bare bool, k, atOnce, n int) (sample, []time.Duration, error) {
	ids := make([]job.ID, k)
	if m.ahead != nil && !bare {
		id, err := m.ahead(ctx, t, n)
		if err != nil {
			return sample{}, nil, err
		}
		for i := range ids {
			ids[i] = id
		}
	}
	firsts := make([]time.Duration, k)
	s, err := load(ctx, k, atOnce, func(ctx context.Context, i int) error {
		began := time.Now()
		var resp *http.Response
		var err error
		if bare {
			resp, err = t.ask(ctx, http.MethodPost, t.bare+fmt.Sprintf("/?n=%d", n), m.block) //nolint:bodyclose // count does
		} else {
			resp, err = m.open(ctx, t, ids[i], n) //nolint:bodyclose // count does
		}
		if err != nil {
			return err
		}
		first, err := count(resp, n)
		firsts[i] = first.Sub(began)
		return err
	})
	slices.Sort(firsts)
	return s, firsts, err
}
