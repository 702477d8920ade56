"""Writes a file and uploads it, to the bucket that the job brings in s3Config
or else to $BUCKET_NAME at $BUCKET_ENDPOINT_URL, and returns its address. Where
others reach the latter by another name, $BUCKET_PUBLIC_URL says which."""

import os
import tempfile

import boto3  # RunPod's SDK brings it
import botocore.config
import runpod
from runpod.serverless.utils import upload_file_to_bucket


WEEK = 7 * 24 * 3600  # as RunPod's addresses


def public(bucket, key):
    """The file's address at $BUCKET_PUBLIC_URL: a signature holds for one name."""
    s3 = boto3.client(
        "s3",
        endpoint_url=os.environ["BUCKET_PUBLIC_URL"],
        aws_access_key_id=os.environ["BUCKET_ACCESS_KEY_ID"],
        aws_secret_access_key=os.environ["BUCKET_SECRET_ACCESS_KEY"],
        config=botocore.config.Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        region_name="us-east-1",
    )
    return s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=WEEK)


def handler(job):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(job["input"].get("text", ""))
        bucket = job.get("s3Config")
        name = bucket["bucketName"] if bucket else os.environ.get("BUCKET_NAME")
        address = upload_file_to_bucket("result.txt", path, bucket, name, prefix=job["id"])
    if not bucket and os.environ.get("BUCKET_PUBLIC_URL"):
        address = public(name, f"{job['id']}/result.txt")
    return {"url": address}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler})
