package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Vars holds what a process reports at /debug/vars.
type Vars struct {
	Goroutines int `json:"goroutines"`
	Memory     struct {
		Mallocs    uint64 `json:"Mallocs"`
		HeapAlloc  uint64 `json:"HeapAlloc"`
		StackInuse uint64 `json:"StackInuse"`
	} `json:"memstats"`
	Pools map[string]Pool `json:"mooring_pools"`
}

// Pool holds the state of one connection pool.
type Pool struct {
	Total      int `json:"total"`
	CheckedOut int `json:"checked_out"`
	Waiting    int `json:"waiting"`
}

// CheckedOut counts the connections of all pools that are in use.
func (v Vars) CheckedOut() int {
	n := 0
	for _, p := range v.Pools {
		n += p.CheckedOut
	}
	return n
}

// Total counts the connections of all pools.
func (v Vars) Total() int {
	n := 0
	for _, p := range v.Pools {
		n += p.Total
	}
	return n
}

// ReadVars asks the process whose debug address this is.
func ReadVars(ctx context.Context, debug string) (Vars, error) {
	var v Vars
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, debug+"/debug/vars", nil)
	if err != nil {
		return v, err
	}
	// A connection that stays open would be a goroutine more in what is counted.
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return v, fmt.Errorf("%s: %s", req.URL, resp.Status)
	}
	return v, json.NewDecoder(resp.Body).Decode(&v)
}
