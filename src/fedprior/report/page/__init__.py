"""The report page: one file that shows what runs came to, and works offline, on a phone, in the dark and on paper."""
