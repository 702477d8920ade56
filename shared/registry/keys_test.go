package registry_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/ratelimit"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestParseScope(t *testing.T) {
	tests := map[string]struct {
		want registry.Scope
		bad  bool
	}{
		"submit:ep1": {want: registry.Scope{Permission: registry.Submit, Endpoint: "ep1"}},
		"read:*":     {want: registry.Scope{Permission: registry.Read, Endpoint: "*"}},
		"admin:*":    {want: registry.Scope{Permission: registry.Admin, Endpoint: "*"}},
		"control":    {want: registry.Scope{Permission: registry.Control}},
		"":           {bad: true},
		"submit":     {bad: true},
		"submit:":    {bad: true},
		"submit:a b": {bad: true},
		"submit:env": {bad: true},
		"Submit:ep1": {bad: true},
		"control:":   {bad: true},
		"control:*":  {bad: true},
		"root:*":     {bad: true},
		" read:*":    {bad: true},
	}
	for text, tc := range tests {
		got, err := registry.ParseScope(text)
		if tc.bad {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%q: got %+v, %v, want ErrInvalid", text, got, err)
			}
			continue
		}
		if err != nil || got != tc.want || got.String() != text {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, tc.want)
		}
	}
}

func TestAllows(t *testing.T) {
	tests := map[string]struct {
		scopes   []string
		endpoint string
		need     registry.Permission
		want     bool
	}{
		"submit may submit":             {[]string{"submit:ep1"}, "ep1", registry.Submit, true},
		"submit may not read":           {[]string{"submit:ep1"}, "ep1", registry.Read, false},
		"another endpoint":              {[]string{"submit:ep1"}, "ep2", registry.Submit, false},
		"a prefix is another endpoint":  {[]string{"submit:ep"}, "ep1", registry.Submit, false},
		"all endpoints":                 {[]string{"read:*"}, "ep2", registry.Read, true},
		"read may not purge":            {[]string{"read:*", "submit:*"}, "ep2", registry.Admin, false},
		"admin may submit":              {[]string{"admin:ep1"}, "ep1", registry.Submit, true},
		"admin may read":                {[]string{"admin:ep1"}, "ep1", registry.Read, true},
		"admin may purge":               {[]string{"admin:ep1"}, "ep1", registry.Admin, true},
		"admin is no control":           {[]string{"admin:*"}, "", registry.Control, false},
		"control":                       {[]string{"control"}, "", registry.Control, true},
		"control is no admin":           {[]string{"control"}, "ep1", registry.Read, false},
		"the second scope counts":       {[]string{"read:ep2", "submit:ep1"}, "ep1", registry.Submit, true},
		"nothing allows nothing":        {nil, "ep1", registry.Read, false},
		"no endpoint is named by a key": {[]string{"control"}, "", registry.Read, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var k registry.Key
			for _, text := range tc.scopes {
				s, err := registry.ParseScope(text)
				if err != nil {
					t.Fatal(err)
				}
				k.Scopes = append(k.Scopes, s)
			}
			if got := k.Allows(tc.endpoint, tc.need); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestKeyIsStoredHashed(t *testing.T) {
	b := newBus(t)
	r := running(t, b)
	plain, key, err := r.Keys.Create(t.Context(), all("laptop"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^fl_[A-Za-z0-9_-]{40}$`).MatchString(plain) {
		t.Errorf("got a key of another form: %d characters", len(plain))
	}
	if !strings.HasSuffix(plain, key.Last4) || len(key.ID) != 32 {
		t.Errorf("got %+v", key)
	}
	kv, err := b.JS.KeyValue(t.Context(), streams.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := kv.Get(t.Context(), key.ID)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(stored.Value()), plain[:len(plain)-4]) {
		t.Error("the key stands in the bucket")
	}
	var back registry.Key
	if err := json.Unmarshal(stored.Value(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(key, back); diff != "" {
		t.Error(diff)
	}
}

func TestCheckAndRevoke(t *testing.T) {
	b := newBus(t)
	maker := running(t, b)
	plain, key, err := maker.Keys.Create(t.Context(), all(""))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*registry.Registry{"cold": open(t, b), "warm": running(t, b), "maker": maker} {
		got, err := r.Keys.Check(t.Context(), plain)
		if err != nil || got.ID != key.ID {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		for _, wrong := range []string{"", plain + "x", plain[:len(plain)-1], "fl_", strings.Repeat("x", 5000), key.ID, key.Hash} {
			if _, err := r.Keys.Check(t.Context(), wrong); !errors.Is(err, registry.ErrUnauthorized) {
				t.Errorf("%s: a wrong key of %d bytes: got %v, want ErrUnauthorized", name, len(wrong), err)
			}
		}
	}
	other := running(t, b)
	testenv.Promptly(t, time.Second, "the other instance refuses", func(n int) time.Duration {
		if n > 0 {
			if plain, key, err = maker.Keys.Create(t.Context(), all("")); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Eventually(t, "the other is warm", func() bool { _, err := other.Keys.Check(t.Context(), plain); return err == nil })
		if err := maker.Keys.Revoke(t.Context(), key.ID); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		testenv.Eventually(t, "the other instance refuses", func() bool {
			_, err := other.Keys.Check(t.Context(), plain)
			return errors.Is(err, registry.ErrUnauthorized)
		})
		return time.Since(began)
	})
	for _, id := range []string{key.ID, "", "x", strings.Repeat("z", 32), ">"} {
		if err := maker.Keys.Revoke(t.Context(), id); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("revoke %q: got %v, want ErrNotFound", id, err)
		}
	}
}

func TestPutKeepsACallersKey(t *testing.T) {
	r := running(t, newBus(t))
	first, err := r.Keys.Put(t.Context(), "my-own-key", all("dev"))
	if err != nil {
		t.Fatal(err)
	}
	spec := registry.KeySpec{Name: "narrow", Scopes: []registry.Scope{{Permission: registry.Read, Endpoint: "ep1"}}}
	second, err := r.Keys.Put(t.Context(), "my-own-key", spec)
	if err != nil || second.ID != first.ID || !second.Created.Equal(first.Created) {
		t.Errorf("got %+v, %v, want the same key", second, err)
	}
	got, err := r.Keys.Check(t.Context(), "my-own-key")
	if err != nil || got.Name != "narrow" || got.Allows("ep1", registry.Admin) {
		t.Errorf("got %+v, %v, want the narrow one", got, err)
	}
	keys, err := r.Keys.List(t.Context())
	if err != nil || len(keys) != 1 {
		t.Errorf("got %d keys, %v, want 1", len(keys), err)
	}
	for name, bad := range map[string]func() error{
		"short":     func() error { _, err := r.Keys.Put(t.Context(), "short", all("")); return err },
		"no scopes": func() error { _, err := r.Keys.Put(t.Context(), "long-enough", registry.KeySpec{}); return err },
		"long name": func() error {
			_, _, err := r.Keys.Create(t.Context(), all(strings.Repeat("é", 192)))
			return err
		},
	} {
		if err := bad(); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

// Changes of a quota at the same time all hold, another process knows them, and
// a restart of dev, which puts its key again, keeps them.
func TestChangesOfAQuotaAllHold(t *testing.T) {
	b := newBus(t)
	one, other := open(t, b), running(t, b)
	key, err := one.Keys.Put(t.Context(), "my-own-key", all("dev"))
	if err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	for i, r := range []*registry.Registry{one, other} {
		g.Go(func() error {
			for n := range int64(5) {
				name := []string{"requests", "concurrent"}[i]
				if _, err := r.Keys.ChangeQuota(t.Context(), key.ID, ratelimit.QuotaChange{name: new(n)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Keys.Put(t.Context(), "my-own-key", all("dev")); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*registry.Registry{"one": one, "other": other} {
		testenv.Within(t, registry.MaxStaleness+3*time.Second, name+" knows the quota", func() bool {
			got, err := r.Keys.Check(t.Context(), "my-own-key")
			return err == nil && got.Quota.String() == "concurrent=4,requests=4"
		})
	}
	for _, id := range []string{strings.Repeat("0", 32), "", "x", ">"} {
		if _, err := one.Keys.ChangeQuota(t.Context(), id, nil); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("change the quota of %q: got %v, want ErrNotFound", id, err)
		}
	}
}

// The check for a missed write is what keeps a revoked key out when the watch
// itself is broken, so break it: its consumer is deleted under it.
func TestRevokedKeyIsRefusedThoughTheWatchBroke(t *testing.T) {
	b := newBus(t)
	maker, victim := open(t, b), running(t, b)
	plain, key, err := maker.Keys.Create(t.Context(), all(""))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the victim's watch stands", func() bool { return len(consumers(t, b.JS)) == 1 })
	testenv.Eventually(t, "the victim is warm", func() bool { _, err := victim.Keys.Check(t.Context(), plain); return err == nil })
	stream, err := b.JS.Stream(t.Context(), "KV_"+streams.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range consumers(t, b.JS) {
		if err := stream.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := maker.Keys.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	testenv.Within(t, registry.MaxStaleness+3*time.Second, "the key is refused", func() bool {
		_, err := victim.Keys.Check(t.Context(), plain)
		return errors.Is(err, registry.ErrUnauthorized)
	})
}

func consumers(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	stream, err := js.Stream(t.Context(), "KV_"+streams.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range stream.ConsumerNames(t.Context()).Name() {
		names = append(names, name)
	}
	return names
}

func all(name string) registry.KeySpec {
	return registry.KeySpec{Name: name, Scopes: registry.AllScopes()}
}
