"""The plan on AWS. Imported only by environments of provider `aws`: pulumi-aws is large."""
