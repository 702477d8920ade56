package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"flightline/shared/client"
)

func TestListReadsAllPages(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		_, _ = fmt.Sscan(r.FormValue("cursor"), &n)
		if r.FormValue("name") != "a&b" {
			t.Errorf("got %s, want the parameters of the first page", r.URL)
		}
		if n < 2 {
			q := r.URL.Query()
			q.Set("cursor", fmt.Sprint(n+1))
			w.Header().Set("Link", "<"+r.URL.Path+"?"+q.Encode()+`>; rel="next"`)
		}
		_, _ = fmt.Fprintf(w, `[{"id":"p%d"}]`, n)
	}))
	defer server.Close()
	c, err := client.New(server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	pods, err := c.Pods().List(t.Context(), url.Values{"name": {"a&b"}})
	if err != nil || len(pods) != 3 || pods[2].ID != "p2" {
		t.Errorf("got %+v, %v, want three", pods, err)
	}
}
