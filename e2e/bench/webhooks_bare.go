package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"flightline/shared/job"
	"flightline/shared/queue"
)

const webhookID = "Webhook-Id" // msg_<job>_<attempt>

// posted is a webhook as its receiver saw it.
type posted struct {
	Header map[string]string `json:"header"`
	Body   []byte            `json:"body"`
}

func jobOf(webhook string) string {
	return strings.TrimSuffix(strings.TrimPrefix(webhook, "msg_"), "_1")
}

// see keeps a webhook, for the bare loop to post others like it.
func (in *inbox) see(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	header := map[string]string{}
	for key := range r.Header {
		header[key] = r.Header.Get(key)
	}
	delete(header, "Content-Length")
	in.seen.Store(&posted{Header: header, Body: body})
}

// others are n webhooks of other jobs, whose signatures are of the right length.
func (p *posted) others(n int) []posted {
	all := make([]posted, n)
	was := jobOf(p.Header[webhookID])
	for i := range all {
		id := string(queue.NewID(job.Async))
		all[i] = posted{Header: map[string]string{}, Body: bytes.Replace(p.Body, []byte(was), []byte(id), 1)}
		for key, value := range p.Header {
			all[i].Header[key] = strings.Replace(value, was, id, 1)
		}
	}
	return all
}

// post is what the bare loop does.
func (p *posted) post(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(p.Body))
	if err != nil {
		return err
	}
	for key, value := range p.Header {
		req.Header.Set(key, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
