"""Key services of clouds: each module is one provider over its maker's own client library."""
