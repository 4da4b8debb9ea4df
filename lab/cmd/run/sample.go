package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
)

const (
	sampleDatabase   = "shop"
	sampleCollection = "orders"
	sampleSize       = 250
)

// accounts are what the examples of transactions move money between.
var accounts = []map[string]any{
	{"_id": "anna", "balance": 100}, {"_id": "ben", "balance": 100},
}

// loadSample fills the sample collections through a gateway of its own, since the user's may ask
// for a credential or have a policy.
func loadSample(ctx context.Context, binary, uri string) (err error) {
	dir, err := os.MkdirTemp("", "mooring-sample-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	g, err := gateway.Start(ctx, gateway.Config{Binary: binary, URI: uri, Directory: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Stop(grace)) }()
	if err := load(ctx, g.REST, sampleDatabase, sampleCollection, sample()); err != nil {
		return err
	}
	return load(ctx, g.REST, "bank", "accounts", accounts)
}

func load(ctx context.Context, rest, database, collection string, documents any) error {
	body, err := json.Marshal(map[string]any{"documents": documents})
	if err != nil {
		return err
	}
	url := fmt.Sprintf("%s/v1/databases/%s/collections/%s/documents:insertMany", rest,
		database, collection)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return nil
}

// order holds one document of the sample, as Extended JSON.
type order struct {
	ID       int               `json:"_id"`
	Customer string            `json:"customer"`
	Status   string            `json:"status"`
	Placed   map[string]string `json:"placed"`
	Total    float64           `json:"total"`
	Items    []item            `json:"items"`
}

type item struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// sample makes the same orders each time.
func sample() []order {
	random := rand.New(rand.NewPCG(1, 2))
	customers := []string{"Ada", "Grace", "Edsger", "Barbara", "Niklaus"}
	statuses := []string{"open", "paid", "shipped", "returned"}
	skus := []string{"rope-20m", "fender-l", "cleat-s", "anchor-15kg", "buoy-red"}
	orders := make([]order, sampleSize)
	placed := time.Date(2026, time.November, 1, 9, 0, 0, 0, time.UTC)
	for i := range orders {
		placed = placed.Add(time.Duration(random.IntN(7200)) * time.Second)
		items := make([]item, 1+random.IntN(3))
		for j := range items {
			items[j] = item{SKU: skus[random.IntN(len(skus))], Quantity: 1 + random.IntN(5)}
		}
		orders[i] = order{
			ID:       i + 1,
			Customer: customers[random.IntN(len(customers))],
			Status:   statuses[random.IntN(len(statuses))],
			Placed:   map[string]string{"$date": placed.Format(time.RFC3339)},
			Total:    float64(50+random.IntN(50000)) / 100,
			Items:    items,
		}
	}
	return orders
}
