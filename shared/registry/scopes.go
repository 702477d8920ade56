package registry

import (
	"fmt"
	"strings"

	"flightline/shared/endpoint"
)

// Permission is what a key may do.
type Permission string

// The permissions. An endpoint's operations need one of the first three, /v1
// needs Control, which none of the others implies, and implies none but LookUp.
const (
	// Submit is run, runsync, cancel, retry, and changing a job's ttl.
	Submit Permission = "submit"
	// Read is status, status-sync, stream, health and requests.
	Read Permission = "read"
	// Admin is everything on an endpoint: submit, read, and purge-queue.
	Admin Permission = "admin"
	// Control is /v1: endpoints with their webhook secrets, keys, pods.
	Control Permission = "control"
	// LookUp is to look at machines, pods, templates and network volumes.
	LookUp Permission = "pods"
)

// AllEndpoints as the endpoint of a scope means each of them, also those made later.
const AllEndpoints = "*"

// Scope is one permission, on one endpoint or on all. Its text is
// "submit:ep1", "read:*", "admin:*", "control" or "pods".
type Scope struct {
	Permission Permission
	// Endpoint is an id or AllEndpoints, and "" for Control and LookUp.
	Endpoint string
}

// ParseScope reads the text of a scope, or returns an ErrInvalid.
func ParseScope(text string) (Scope, error) {
	permission, id, found := strings.Cut(text, ":")
	s := Scope{Permission: Permission(permission), Endpoint: id}
	switch s.Permission {
	case Control, LookUp:
		if found {
			return Scope{}, fmt.Errorf("%w: scope %q: %s takes no endpoint", ErrInvalid, text, permission)
		}
		return s, nil
	case Submit, Read, Admin:
		if id != AllEndpoints && !endpoint.ValidID(id) {
			return Scope{}, fmt.Errorf("%w: scope %q: after %s: comes an endpoint id or *", ErrInvalid, text, permission)
		}
		return s, nil
	}
	return Scope{}, fmt.Errorf("%w: scope %q: must be submit:ENDPOINT, read:ENDPOINT, admin:ENDPOINT, control or pods; ENDPOINT may be *", ErrInvalid, text)
}

// ParseScopes reads several, at least one.
func ParseScopes(texts []string) ([]Scope, error) {
	if len(texts) == 0 {
		return nil, fmt.Errorf("%w: at least one scope is needed", ErrInvalid)
	}
	scopes := make([]Scope, 0, len(texts))
	for _, text := range texts {
		s, err := ParseScope(text)
		if err != nil {
			return nil, err
		}
		scopes = append(scopes, s)
	}
	return scopes, nil
}

// AllScopes are those of a key that may do everything.
func AllScopes() []Scope {
	return []Scope{{Permission: Admin, Endpoint: AllEndpoints}, {Permission: Control}}
}

func (s Scope) String() string {
	if s.Permission == Control || s.Permission == LookUp {
		return string(s.Permission)
	}
	return string(s.Permission) + ":" + s.Endpoint
}

// MarshalText is String, so that scopes are texts in JSON too.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseScope.
func (s *Scope) UnmarshalText(text []byte) error {
	parsed, err := ParseScope(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

func (s Scope) allows(id string, need Permission) bool {
	if s.Permission == Control {
		return need == Control || need == LookUp
	}
	if need == Control || need == LookUp || s.Permission == LookUp {
		return s.Permission == need
	}
	if s.Endpoint != AllEndpoints && s.Endpoint != id {
		return false
	}
	return s.Permission == need || s.Permission == Admin
}
