package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

// Templates manages what pods and endpoints can be made from. The permissions
// are those of Pods.
type Templates struct{ things[Template, TemplateSpec] }

// Templates returns the calls that manage templates.
func (c *Client) Templates() Templates {
	return Templates{things[Template, TemplateSpec]{c, "templates"}}
}

// Template is what pods and endpoints can be made from.
type Template struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Image      string `json:"imageName"`
	Serverless bool   `json:"isServerless"`
	// Raw is the answer itself, for what this type does not name.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON reads the API's template.
func (t *Template) UnmarshalJSON(data []byte) error {
	type plain Template
	if err := json.Unmarshal(data, (*plain)(t)); err != nil {
		return err
	}
	t.Raw = bytes.Clone(data)
	return nil
}

// MarshalJSON returns the answer as it came.
func (t Template) MarshalJSON() ([]byte, error) { return rawOr(t.Raw) }

// TemplateSpec is a template to make or change.
type TemplateSpec struct {
	Spec
	Serverless *bool  `json:"isServerless,omitempty"`
	Readme     string `json:"readme,omitempty"`
	// Category is "NVIDIA", "AMD" or "CPU".
	Category string `json:"category,omitempty"`
}

// things are the calls that templates and volumes have in common.
type things[T, S any] struct {
	c    *Client
	path string
}

// Create makes one.
func (t things[T, S]) Create(ctx context.Context, spec S) (*T, error) {
	return one[T](ctx, t.c, call{method: http.MethodPost, path: v1(t.path), body: spec})
}

// Get returns one.
func (t things[T, S]) Get(ctx context.Context, id string) (*T, error) {
	return one[T](ctx, t.c, call{method: http.MethodGet, path: v1(t.path, id)})
}

// List returns all, of all pages.
func (t things[T, S]) List(ctx context.Context) ([]T, error) {
	return allPages[T](ctx, t.c, v1(t.path), nil)
}

// Update changes what spec names.
func (t things[T, S]) Update(ctx context.Context, id string, spec S) (*T, error) {
	return one[T](ctx, t.c, call{method: http.MethodPatch, path: v1(t.path, id), body: spec})
}

// Delete removes one that nothing uses.
func (t things[T, S]) Delete(ctx context.Context, id string) error {
	return t.c.do(ctx, call{method: http.MethodDelete, path: v1(t.path, id)}, nil)
}
