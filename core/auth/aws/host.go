package aws

import (
	"errors"
	"fmt"
	"strings"
)

const (
	defaultRegion = "us-east-1"
	maxHost       = 255 // RFC 1035
)

// region returns the region of the host of a security token service. The host is a
// server's word: it goes into what is signed, so that anything but the characters of a domain name
// is refused.
func region(host string) (string, error) {
	if err := checkHost(host); err != nil {
		return "", err
	}
	labels := strings.Split(host, ".")
	if len(labels) == 1 || host == "sts.amazonaws.com" || host == "aws.amazonaws.com" {
		return defaultRegion, nil
	}
	return labels[1], nil
}

func checkHost(host string) error {
	switch {
	case host == "":
		return errors.New("the server's STS host is empty")
	case len(host) > maxHost:
		return fmt.Errorf("the server's STS host has %d bytes (limit %d)", len(host), maxHost)
	case strings.ContainsFunc(host, notInDomain):
		return fmt.Errorf("the server's STS host %q is not a domain name", host)
	case strings.Contains("."+host+".", ".."):
		return fmt.Errorf("the server's STS host %q has an empty label", host)
	}
	return nil
}

func notInDomain(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	digit := r >= '0' && r <= '9'
	return !letter && !digit && r != '-' && r != '_' && r != '.'
}
