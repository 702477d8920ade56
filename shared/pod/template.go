package pod

import "time"

// Template is what pods and endpoints can be made from.
type Template struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Spec Spec   `json:"spec"`
	// Serverless templates are for endpoints.
	Serverless bool `json:"serverless,omitempty"`
	// Category is "NVIDIA", "AMD" or "CPU"; Readme is text for people.
	Category string    `json:"category,omitempty"`
	Readme   string    `json:"readme,omitempty"`
	Created  time.Time `json:"created"`
}

// Volume is a network volume: storage that outlives pods.
type Volume struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	SizeGB       int    `json:"sizeGb"`
	DataCenterID string `json:"dataCenterId"`
	// Path is where it is on the hosts, for drivers that mount it.
	Path    string    `json:"path,omitempty"`
	Created time.Time `json:"created"`
}
