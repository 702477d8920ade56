"""Writes a file and uploads it, to the bucket that the job brings in s3Config
or else to that of $BUCKET_ENDPOINT_URL, and returns its address."""

import os
import tempfile

import runpod
from runpod.serverless.utils import upload_file_to_bucket


def handler(job):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(job["input"].get("text", ""))
        bucket = job.get("s3Config")
        address = upload_file_to_bucket(
            "result.txt", path, bucket, bucket["bucketName"] if bucket else None, prefix=job["id"]
        )
    return {"url": address}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler})
