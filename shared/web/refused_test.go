package web_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/registry"
	"flightline/shared/web"
)

// counted is a keyring that counts what it was asked, and whose keys can go.
type counted struct {
	mu    sync.Mutex
	keys  keyring
	asked int
}

func (k *counted) Check(ctx context.Context, plain string) (registry.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	return k.keys.Check(ctx, plain)
}

func (k *counted) Known(plain string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys.Known(plain)
}

func (k *counted) revoke(plain string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, plain)
}

func newCounted() *counted {
	return &counted{keys: keyring{"good": {Scopes: []registry.Scope{{Permission: registry.Submit, Endpoint: "*"}}}}}
}

func TestAnAddressThatShowsUnknownKeysIsNotLookedUp(t *testing.T) {
	keys := newCounted()
	app := web.New(web.Config{})
	app.Post("/v2/:endpoint/run", web.Auth(keys, registry.Submit), func(c *fiber.Ctx) error { return c.JSON(fiber.Map{}) })
	url := "http://" + serve(t, app) + "/v2/ep/run"
	send := func(key string) answer {
		req := request(t, http.MethodPost, url, http.NoBody)
		req.Header.Set("Authorization", key)
		return do(t, req)
	}
	const wrong = 300
	began, statuses := time.Now(), map[int]int{}
	for range wrong {
		got := send("wrong")
		if statuses[got.status]++; got.status == http.StatusTooManyRequests && got.header.Get("Retry-After") == "" {
			t.Fatal("got a 429 without Retry-After")
		}
	}
	lookedUp := 100 + 20*int(time.Since(began)/time.Second+1)
	if statuses[http.StatusUnauthorized] < 100 || statuses[http.StatusUnauthorized] > lookedUp || statuses[http.StatusUnauthorized]+statuses[http.StatusTooManyRequests] != wrong {
		t.Errorf("got %v for %d wrong keys, want 100 to %d times 401, then 429", statuses, wrong, lookedUp)
	}
	if keys.asked != statuses[http.StatusUnauthorized] {
		t.Errorf("got %d look-ups, want %d", keys.asked, statuses[http.StatusUnauthorized])
	}
	if got := send("good"); got.status != http.StatusOK || got.header.Get("Retry-After") != "" {
		t.Errorf("a good key from that address: got %d %v, want 200", got.status, got.header)
	}
}

// An answer that is held ends when its key is revoked, whatever its handler does.
func TestARevokedKeyEndsItsHeldAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		streamed bool
		want     int
	}{"whole": {false, http.StatusUnauthorized}, "streamed": {true, http.StatusOK}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, held, why := newCounted(), make(chan struct{}, 1), make(chan error, 1)
			app := web.New(web.Config{})
			app.Get("/v2/:endpoint/x", web.Auth(keys, registry.Submit), func(c *fiber.Ctx) error {
				ctx, release := web.LongPoll(c, time.Hour)
				if !tt.streamed {
					defer release()
					held <- struct{}{}
					<-ctx.Done()
					why <- context.Cause(ctx)
					return c.JSON(fiber.Map{"secret": true})
				}
				first := true
				web.Stream(c, func() ([]byte, error) {
					if first {
						first = false
						return []byte("begun"), nil
					}
					held <- struct{}{}
					<-ctx.Done()
					why <- context.Cause(ctx)
					return nil, context.Cause(ctx)
				}, release)
				return nil
			})
			req := request(t, http.MethodGet, "http://"+serve(t, app)+"/v2/ep/x", http.NoBody)
			req.Header.Set("Authorization", "good")
			ended := make(chan int, 1)
			go func() {
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					ended <- 0
					return
				}
				defer resp.Body.Close()
				_, _ = resp.Body.Read(make([]byte, 64)) // what comes is the handler's test
				for err == nil {
					_, err = resp.Body.Read(make([]byte, 64))
				}
				ended <- resp.StatusCode
			}()
			receive(t, held, patience)
			keys.revoke("good")
			if got := receive(t, why, patience); !errors.Is(got, web.ErrRevoked) || !errors.Is(got, web.ErrGone) {
				t.Errorf("got %v, want ErrRevoked", got)
			}
			if got := receive(t, ended, patience); got != tt.want {
				t.Errorf("got status %d, want %d", got, tt.want)
			}
		})
	}
}
