package docs

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"flightline/shared/job"
	"flightline/shared/registry"
)

// route is one path with what the running services know of it.
type route struct {
	path    string
	methods []string
	// needs is the permission of the least key that is let in.
	needs registry.Permission
	// body is the largest body that is taken, in bytes; 0 if none is read.
	body int
}

func (r route) name() string { return strings.Join(r.methods, ", ") + " " + r.path }

// routesOf reads the routes off the app and tries out who is let in and how
// much is taken. Routes that differ by their method alone are one only if they
// are alike in all else.
func routesOf(t *testing.T, s *env) []route {
	t.Helper()
	var found []route
	for _, r := range s.app.GetRoutes(true) {
		if r.Method == http.MethodHead { // Fiber's twin of each GET
			continue
		}
		next := route{path: r.Path, methods: []string{r.Method}, needs: needsOf(t, s, r.Method, r.Path)}
		if next.needs != ofWorker { // what they post is answered 200, however large
			next.body = bodyOf(t, s, r.Method, r.Path)
		}
		same := slices.IndexFunc(found, func(f route) bool {
			return f.path == next.path && f.needs == next.needs && twins(f, next)
		})
		if same < 0 {
			found = append(found, next)
			continue
		}
		found[same].methods = append(found[same].methods, r.Method)
		found[same].body = max(found[same].body, next.body)
	}
	return found
}

// twins are the GET and the POST of a path that clients poll in either way.
func twins(a, b route) bool {
	return strings.HasPrefix(a.path, "/v2/") && a.methods[0] != b.methods[0]
}

// concrete is a path in which nothing exists.
func concrete(path string) string {
	if path == "/v1/events" { // which would be followed for an hour
		return path + "?follow=false"
	}
	return strings.NewReplacer(":endpoint", "nobody", ":id", "nothing", ":pod", "nopod", ":worker", "noone", ":path", "v1/models").Replace(path)
}

func needsOf(t *testing.T, s *env, method, path string) registry.Permission {
	t.Helper()
	opens := func(p registry.Permission) bool {
		status, _ := s.ask(t, method, concrete(path), "", p)
		return status != http.StatusUnauthorized
	}
	for _, p := range []registry.Permission{"", registry.Submit, registry.Read, registry.Admin, registry.LookUp, registry.Control, ofWorker} {
		switch {
		case !opens(p):
		case p == registry.Submit && opens(registry.Read):
			return anyKey
		default:
			return p
		}
	}
	t.Errorf("%s %s lets nobody in", method, path)
	return ""
}

func bodyOf(t *testing.T, s *env, method, path string) int {
	t.Helper()
	if method != http.MethodPost && method != http.MethodPatch {
		return 0
	}
	for _, size := range []int{64 << 10, 1 << 20, job.MaxRunBody, job.MaxRunSyncBody} {
		if status, _ := s.ask(t, method, concrete(path), strings.Repeat(" ", size+1), all); status != http.StatusRequestEntityTooLarge {
			continue
		}
		if status, _ := s.ask(t, method, concrete(path), strings.Repeat(" ", size), all); status == http.StatusRequestEntityTooLarge {
			t.Errorf("%s %s: %d bytes are too large, want a limit that this test knows", method, path, size)
		}
		return size
	}
	t.Errorf("%s %s takes more than 20 MB", method, path)
	return 0
}

func size(n int) string {
	switch {
	case n == 0:
		return "–"
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d KB", n>>10)
}
