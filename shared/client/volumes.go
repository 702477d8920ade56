package client

// Volumes manages network volumes. The permissions are those of Pods.
type Volumes struct{ things[Volume, VolumeSpec] }

// Volumes returns the calls that manage network volumes.
func (c *Client) Volumes() Volumes { return Volumes{things[Volume, VolumeSpec]{c, "networkvolumes"}} }

// Volume is storage that outlives pods.
type Volume struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Size is in GB.
	Size       int    `json:"size"`
	DataCenter string `json:"dataCenterId"`
	// Path is where it is on the hosts, "" if a driver decides.
	Path string `json:"path,omitempty"`
}

// VolumeSpec is a network volume to make or change; zero values change nothing.
type VolumeSpec struct {
	Name string `json:"name,omitempty"`
	// Size is in GB, and never becomes less.
	Size       int    `json:"size,omitempty"`
	DataCenter string `json:"dataCenterId,omitempty"`
	Path       string `json:"path,omitempty"`
}
