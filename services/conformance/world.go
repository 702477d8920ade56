package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"flightline/shared/pod"
	"flightline/shared/retry"
)

// world is the server that is tested, and what conform has around it.
type world struct {
	cfg   Config
	http  *http.Client
	hooks *hooks // nil where webhooks cannot come
	made  string // the endpoint that conform made, "" for none
	work  *remote
	stop  func() // ends the worker; nil while no worker runs
}

// newWorld takes what ctx and cfg give; nothing is sent yet.
func newWorld(ctx context.Context, cfg Config) (*world, error) {
	cfg = cfg.with()
	w := &world{cfg: cfg, http: &http.Client{
		Transport:     cfg.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if met, _ := cfg.provided(needHooks); met {
		hooks, err := listenHooks(ctx, cfg.HookListen, cfg.HookURL)
		if err != nil {
			return nil, fmt.Errorf("--webhook-listen: %w", err)
		}
		w.hooks = hooks
	}
	return w, nil
}

func (w *world) close() {
	if w.hooks != nil {
		w.hooks.close()
	}
	w.http.CloseIdleConnections()
}

// prepare sees that the server answers, and makes what conform needs there.
func (w *world) prepare(ctx context.Context) error {
	if w.cfg.Make {
		if err := w.makeEndpoint(ctx); err != nil {
			return err
		}
	}
	if w.cfg.WorkerEnv != nil {
		w.work = newRemote(w.cfg.WorkerEnv, w.cfg.Transport)
	}
	if _, err := w.send(ctx, call{method: "GET", path: "/v2/" + w.cfg.Endpoint + "/health"}); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return nil
}

// startWork starts the worker, if conform is one.
func (w *world) startWork(ctx context.Context) {
	if w.work != nil {
		w.stop = w.work.start(ctx)
	}
}

// cleanUpTimeout bounds cleaning up, and each step of making an endpoint.
const cleanUpTimeout = time.Minute

// cleanUp ends the worker and deletes what conform made, also after ctx's end.
func (w *world) cleanUp(ctx context.Context) error {
	if w.stop != nil {
		w.stop()
	}
	if w.made == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	a, again, err := w.sendUntilAvailable(ctx, call{method: "DELETE", path: "/v1/endpoints/" + w.made + "?force=true", rest: true})
	gone := a.status == http.StatusNoContent || again && a.status == http.StatusNotFound
	if err != nil || !gone {
		return fmt.Errorf("delete the endpoint %s: %w", w.made, a.orElse(err))
	}
	return nil
}

// makeEndpoint makes an endpoint and lets a worker in.
func (w *world) makeEndpoint(ctx context.Context) error {
	id := "conform-" + strings.ToLower(rand.Text()[:10])
	a, again, err := w.sendUntilAvailable(ctx, call{method: "POST", path: "/v1/endpoints", body: fmt.Sprintf(`{"id":%q}`, id), rest: true})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	// A 503 says that the try may be made again, and may have made the endpoint. No one
	// else has its random id.
	if ours := again && a.status == http.StatusConflict; a.status != http.StatusOK && !ours {
		return fmt.Errorf("--make: make an endpoint: %s", a)
	}
	w.made = id
	w.cfg.all(id)
	a, _, err = w.sendUntilAvailable(ctx, call{method: "POST", path: "/v1/endpoints/" + id + "/workers", body: `{}`, rest: true})
	token, worker := a.text("token"), a.text("id")
	if err != nil || token == "" || worker == "" {
		return fmt.Errorf("--make: let a worker in: %w", a.orElse(err))
	}
	w.cfg.WorkerEnv = environmentOf(pod.Worker{BaseURL: w.cfg.BaseURL, Endpoint: id, ID: worker, Token: token})
	return w.awaitServed(ctx)
}

// sendUntilAvailable sends the call again while the answer is 503, for cleanUpTimeout at
// most. again reports whether an earlier answer was.
func (w *world) sendUntilAvailable(ctx context.Context, c call) (a answer, again bool, err error) {
	end := time.Now().Add(cleanUpTimeout)
	for {
		a, err = w.send(ctx, c)
		if err != nil || a.status != http.StatusServiceUnavailable || time.Now().After(end) || retry.Sleep(ctx, pollInterval) != nil {
			return a, again, err
		}
		again = true
	}
}

// awaitServed waits until the queue API knows the new endpoint.
func (w *world) awaitServed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	for why := error(nil); ; {
		a, err := w.send(ctx, call{method: "GET", path: "/v2/" + w.made + "/health"})
		if err == nil && a.status == http.StatusOK {
			return nil
		}
		if why == nil || ctx.Err() == nil { // that the time was over says less than the answer before
			why = a.orElse(err)
		}
		if retry.Sleep(ctx, pollInterval) != nil {
			return fmt.Errorf("--make: the new endpoint is not served: %w", why)
		}
	}
}

// call is a request.
type call struct {
	method, path, body string
	header             map[string]string // instead of what is sent by itself; "" removes one
	rest               bool              // to the REST API
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	raw    []byte
	value  any            // nil if it is no JSON
	object map[string]any // nil if it is no object
}

// maxShown bounds how much of an answer a failure shows.
const maxShown = 200

func (a answer) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", a.status, a.raw[:min(len(a.raw), maxShown)]))
}

// orElse is err, or where that is nil the answer as the error.
func (a answer) orElse(err error) error {
	if err != nil {
		return err
	}
	return errors.New(a.String())
}

// text is a field that is a string, "" if it is absent.
func (a answer) text(field string) string { s, _ := a.object[field].(string); return s }

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 20

// send sends the request and reads the answer, whatever its status.
func (w *world) send(ctx context.Context, c call) (answer, error) {
	base, key := w.cfg.BaseURL, w.cfg.Key
	if c.rest {
		base, key = w.cfg.RestURL, w.cfg.RestKey
	}
	var body io.Reader
	if c.body != "" {
		body = strings.NewReader(c.body)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, base+c.path, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("User-Agent", "flightline-conform")
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.header {
		if req.Header.Set(name, value); value == "" {
			req.Header.Del(name)
		}
	}
	return receive(w.http, req)
}

func receive(client *http.Client, req *http.Request) (answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("read the answer: %w", err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: raw}
	decode := json.NewDecoder(bytes.NewReader(raw))
	decode.UseNumber() // a fraction or 1e3 is distinguished from a whole number
	if decode.Decode(&a.value) == nil {
		a.object, _ = a.value.(map[string]any)
	}
	return a, nil
}
