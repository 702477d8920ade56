package client_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"flightline/shared/client"
)

// inMemory answers a request with a body that breaks off when the request's context ends.
type inMemory func(w io.WriteCloser)

func (serve inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	go func() {
		<-r.Context().Done()
		_ = w.CloseWithError(r.Context().Err())
	}()
	go serve(w)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": r.Header["Accept"]}, Body: body, Request: r}, nil
}

func TestTheTimeThatAReaderTakesIsNoSilenceOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := inMemory(func(w io.WriteCloser) {
			for _, event := range []string{chunk(1), chunk(2), "event: status\ndata: {\"id\":\"j1\",\"status\":\"COMPLETED\"}\n\n"} {
				_, _ = io.WriteString(w, event) // each is read by itself
			}
		})
		c, err := client.New("http://h", "", client.WithHTTPClient(&http.Client{Transport: answer}))
		if err != nil {
			t.Fatal(err)
		}
		s := c.Stream("ep", "j1", client.StreamOptions{Patience: -1})
		for got, err := range s.All(t.Context()) {
			if err != nil {
				t.Fatalf("behind chunk %d: got %v", s.Cursor(), err)
			}
			<-time.After(time.Duration(got.Cursor) * time.Minute) // of the test's own clock
		}
		if s.End() == nil || s.Cursor() != 2 {
			t.Errorf("got the end %v behind chunk %d, want it behind 2", s.End(), s.Cursor())
		}
	})
}

func TestWhatTakesLongForManyJobsIsWaitedFor(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *client.Client) error{
		"purge":  func(ctx context.Context, c *client.Client) error { _, err := c.PurgeQueue(ctx, "ep"); return err },
		"delete": func(ctx context.Context, c *client.Client) error { return c.Endpoints().Delete(ctx, "ep", true) },
		"replay": func(ctx context.Context, c *client.Client) error {
			_, err := c.Webhooks("ep").ReplaySince(ctx, time.Time{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := inMemory(func(w io.WriteCloser) {
					<-time.After(50 * time.Minute)
					_, _ = io.WriteString(w, "{}")
					_ = w.Close()
				})
				c, err := client.New("http://h", "", client.WithHTTPClient(&http.Client{Transport: answer}))
				if err != nil {
					t.Fatal(err)
				}
				if err := ask(t.Context(), c); err != nil {
					t.Errorf("got %v, want the answer", err)
				}
			})
		})
	}
}
